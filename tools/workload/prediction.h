// Whether a program fits on a device under a strategy, by how much, and what takes the memory, without
// computing anything. Knows no command line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/strategy.h"
#include "runtime/core/sim/profiles.h"
#include "tools/workload/workload.h"

namespace headroom {

// What the kernels of the CPU and of simulated GPUs need, by node, as make_plan takes it.
std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph);

// Where memory goes at the peak: what a recording tells apart (see categorise), and what no block is.
enum class Category : uint8_t {
  kWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kInputs,
  kWorkspace,
  kContext,
  kLibraries,  // handles and kernels
  kUnused,     // the strategy's rounding and idle memory, and arenas of sessions that do not run
};
inline constexpr std::array<std::string_view, 9> kCategoryNames = {
    "weights",   "gradients", "optimizer_state", "activations", "inputs",
    "workspace", "context",   "libraries",       "unused"};
using ByCategory = std::array<int64_t, kCategoryNames.size()>;

struct Prediction {
  bool fits = false;
  // How much less memory the device (or the limit, where that binds first) could have; negative: how much
  // more it would need.
  int64_t margin_bytes = 0;
  // Peak of this process as the driver sees it; where it does not fit, on the least device on which it does.
  // Zero, like what follows but `reason`, where it fits on none.
  int64_t total_bytes = 0;
  ByCategory by_category{};  // its parts
  int64_t reserved_bytes = 0, allocated_bytes = 0;
  double fragmentation = 0;  // Statistics' own, when most is allocated
  std::string peak_op;       // node during which most is live
  std::string reason;        // why it does not fit, one line
};

// What memory a program runs in.
struct Place {
  DeviceProfile profile;
  StrategySettings strategy;
  bool libraries_first = false;
};

// The place that options name. A real GPU is taken for an H200 with its total and what is in use now; that
// needs its driver, but makes no context. Throws InvalidArgument for the CPU and for a GPU that is not there.
Place place_of(const RuntimeOptions& options);

// A program planned for CPU kernels, which simulated GPUs use; predictions for real ones share their
// workspaces.
class Predictor {
 public:
  // Throws as make_plan does.
  Predictor(Program program, PlanMode mode);

  // Whether it fits with `margin_bytes` less free on the device.
  bool fits(const Place& place, int64_t margin_bytes = 0) const;
  // Statistics' fragmentation when most is allocated, or when there is no room.
  double fragmentation(const Place& place) const;
  // The margin is searched for with samples between the whole memory and none, see docs/predict.md. Throws
  // InvalidArgument for settings that contradict each other or the device.
  Prediction predict(const Place& place) const;
  // The least total memory of the device with which it fits, others unchanged, so that no sample between it
  // and the present one (or the first above it that fits) fails. Nothing where it fits on no device.
  std::optional<int64_t> least_total_bytes(const Place& place) const;
  // Below this no strategy can go: variables and the largest set of results live at once.
  int64_t lower_bound_bytes() const;

 private:
  struct Trial;
  Trial play(const Place& place) const;
  // The same for a place that nobody asked for, in which settings may contradict each other.
  bool would_fit(const Place& place) const;
  std::optional<int64_t> least_limit_bytes(const Place& place) const;
  ByCategory variables_by_category() const;
  ByCategory live_at_peak() const;

  Program program_;
  std::vector<Plan> plans_;
  std::vector<Category> category_of_value_;
  const Plan* largest_ = nullptr;
  int64_t variable_bytes_ = 0;
};

}  // namespace headroom
