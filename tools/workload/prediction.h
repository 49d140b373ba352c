// Whether a program fits on its devices under a strategy, by how much, and what takes the memory, without
// computing anything. Knows no command line.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/predict/play_program.h"
#include "tools/workload/workload.h"

namespace headroom {

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

// What a program takes of one of its devices.
struct DevicePrediction {
  std::string name;            // "/device:GPU:1"
  int64_t variable_bytes = 0;  // weights, optimizer state and data that live there
  int64_t step_bytes = 0;      // the most that a step allocates there: of all its sessions the largest
  // All zero where it fits on no size of the device. `process_bytes` is of the GPU, which virtual devices
  // share.
  PeakPrediction peak = {};
};

struct Prediction {
  bool fits = false;
  // How much less memory each device (or the limit, where that binds first) could have; negative: how much
  // more it would need.
  int64_t margin_bytes = 0;
  // Of the fullest device: peak of this process as the driver sees it; where it does not fit, on the least
  // device on which it does. Zero, like what follows but `reason`, where it fits on none.
  int64_t total_bytes = 0;
  ByCategory by_category{};  // its parts, with those of virtual devices on the same GPU
  int64_t reserved_bytes = 0, allocated_bytes = 0;
  double fragmentation = 0;               // Statistics' own, when most is allocated
  std::string peak_op;                    // node during which most is live
  std::string reason;                     // why it does not fit, one line
  std::vector<DevicePrediction> devices;  // of each replica, or each that a net is placed on
  int64_t copies = 0, copied_bytes = 0;   // between devices, of a step of the first session
};

// The setup of options whose program is to fit. Throws InvalidArgument for the CPU, and what setup_of
// throws.
RunSetup setup_to_fit(const RuntimeOptions& options);

// All replicas of a program, planned. Settings are of the options that it was made of, changed at will but
// for batch and plan.
class Predictor {
 public:
  // Throws as make_programs and make_plan do.
  explicit Predictor(const WorkloadOptions& options);

  // Whether it fits with `margin_bytes` less free on every GPU.
  bool fits(const RunSetup& setup, int64_t margin_bytes = 0) const;
  // Statistics' fragmentation on the first device when most is allocated, or where there is no room.
  double fragmentation(const RunSetup& setup) const { return play(setup).fragmentation; }
  // The margin is searched for with samples between the whole memory and none, see docs/predict.md. Throws
  // InvalidArgument for settings that contradict each other or the device.
  Prediction predict(const RunSetup& setup) const;
  // The least total memory of the GPUs with which it fits, others unchanged, so that no sample between it
  // and the present one (or the first above it that fits) fails. Nothing where it fits on no device.
  std::optional<int64_t> least_total_bytes(const RunSetup& setup) const;
  // Below this no strategy can go on any of the devices, or on all together: variables and the largest set of
  // results live at once.
  int64_t lower_bound_bytes() const;
  // Whether that is more than some device has for the program.
  bool is_too_large(const RunSetup& setup, int64_t margin_bytes) const;

 private:
  // What each device holds by itself, as the plans say; in the order of a played attempt.
  struct Need {
    std::string name;
    const PlannedProgram* program;
    size_t device;               // position in Plan::devices
    const Plan* largest;         // of its sessions, on that device
    int64_t variable_bytes = 0;  // in blocks
    int64_t step_bytes = 0;
    int64_t lower_bound_bytes() const { return variable_bytes + largest->devices[device].lower_bound_bytes; }
  };

  PlayedAttempt play(const RunSetup& setup) const;
  // The same for a setup that nobody asked for, which may contradict itself.
  bool would_fit(const RunSetup& setup) const;
  std::optional<int64_t> least_raise_bytes(const RunSetup& setup) const;
  void add_live_at_peak(const Need& need, ByCategory& bytes) const;

  std::vector<std::shared_ptr<const PlannedProgram>> ranks_;
  std::vector<Played> played_;
  std::vector<Need> needs_;
};

}  // namespace headroom
