// Whether a program fits on its devices under a strategy, by how much, and what takes the memory, without
// computing anything. Knows no command line.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/play_program.h"
#include "answers/solve_program.h"
#include "base/edge.h"
#include "base/terminal.h"
#include "tools/workload/workload.h"

namespace headroom {

// Where memory goes at the peak: the categories of a trace (see categorise), and what no block holds.
enum class Category : uint8_t {
  kWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kInputs,
  kWorkspace,
  kContext,
  kLibraries,  // handles and kernels
  kUnused,     // rounding and idle memory of the strategy, and arenas of sessions that do not run
};
inline constexpr std::array<std::string_view, 9> kCategoryNames = {
    "weights",   "gradients", "optimizer_state", "activations", "inputs",
    "workspace", "context",   "libraries",       "unused"};
using ByCategory = std::array<int64_t, kCategoryNames.size()>;

// The memory that a program takes on one of its devices.
struct DevicePrediction {
  std::string name;            // "/device:GPU:1"
  int64_t variable_bytes = 0;  // weights, optimizer state and data
  int64_t step_bytes = 0;      // the most that a step of any session allocates
  // All zero when it fits on no size of the device. `process_bytes` is of the GPU, which virtual devices
  // share.
  PeakPrediction peak = {};
};

struct Prediction {
  bool fits = false;
  // How much less memory each device (or the limit, when that binds first) could have; negative: how much
  // more it needs.
  int64_t margin_bytes = 0;
  // On the fullest device: the driver's peak of this process; when it does not fit, on the smallest device on
  // which it does. When it fits on none, this and all below but `reason` are zero.
  int64_t total_bytes = 0;
  ByCategory by_category{};  // its parts, with those of virtual devices on the same GPU
  int64_t reserved_bytes = 0, allocated_bytes = 0;
  double fragmentation = 0;               // of Statistics, when most is allocated
  std::string peak_op;                    // the node at which most is live
  std::string reason;                     // why it does not fit, one line
  std::vector<DevicePrediction> devices;  // of each replica, or those that a net is placed on
  int64_t copies = 0, copied_bytes = 0;   // between devices, in a step of the first session of all replicas
};

// The setup of options for a prediction. Throws InvalidArgument for the CPU, and as setup_of does.
RunSetup setup_to_fit(const RuntimeOptions& options);
// What other processes hold of the GPU of the options.
int64_t others_bytes(const RunSetup& setup);

// All replicas of a program, planned. A setup may differ from the options that it was made of in everything
// but batch and plan.
class Predictor {
 public:
  // Throws as make_programs and make_plan do. A predictor may be used by several threads.
  explicit Predictor(const WorkloadOptions& options);

  // Whether it fits when every GPU has `margin_bytes` less free memory.
  bool fits(const RunSetup& setup, int64_t margin_bytes = 0) const;
  // Fragmentation of the first device when most is allocated, or of the device without room.
  double fragmentation(const RunSetup& setup) const { return play(setup).fragmentation; }
  // Searches for the margin with samples between the whole memory and none, see docs/predict.md. Throws
  // InvalidArgument for a setup that contradicts itself.
  Prediction predict(const RunSetup& setup) const;
  // The least total memory of the GPUs with which it fits, so that no sample between it and the present total
  // (or the first total above it that fits) fails. Nothing when it fits on no device.
  std::optional<int64_t> least_total_bytes(const RunSetup& setup) const {
    return least_total_bytes(setup, nullptr);
  }
  // No strategy can need less on all devices together: variables and the most results that are live at once.
  int64_t lower_bound_bytes() const;
  // How the program of a replica keeps to the memory of the options; null without a budget.
  std::shared_ptr<const MemorySolution> memory_of(int rank) const {
    return ranks_[static_cast<size_t>(rank)]->program.memory;
  }
  // How often all sessions were played so far.
  int64_t plays() const { return plays_; }
  // Why the budget of the options cannot be kept, with the least that can; nothing when it can.
  std::optional<MemoryTooSmall> why_not_kept() const;
  // Throws MemoryTooSmall when it cannot.
  void require_kept() const;
  // Whether that exceeds some device's memory for the program.
  bool is_too_large(const RunSetup& setup, int64_t margin_bytes) const;

 private:
  // What the plans need on each device, in the order of a played attempt.
  struct Need {
    std::string name;
    const PlannedProgram* program;
    size_t device;               // position in Plan::devices
    const Plan* largest;         // of its sessions on that device
    int64_t variable_bytes = 0;  // in blocks
    int64_t step_bytes = 0;
    int64_t lower_bound_bytes() const { return variable_bytes + largest->devices[device].lower_bound_bytes; }
  };

  PlayedAttempt play(const RunSetup& setup) const;
  // The same for a trial, whose setup may contradict itself.
  PlayedAttempt try_to_play(const RunSetup& setup) const;
  bool would_fit(const RunSetup& setup) const { return try_to_play(setup).fits; }
  // `now`: what was played in the setup; null: nothing.
  std::optional<int64_t> least_total_bytes(const RunSetup& setup, const PlayedAttempt* now) const;
  std::optional<int64_t> least_raise_bytes(const RunSetup& setup) const;
  SearchWork search_work() const;
  void add_live_at_peak(const Need& need, ByCategory& bytes) const;

  std::vector<std::shared_ptr<const PlannedProgram>> ranks_;
  std::vector<Played> played_;
  std::vector<Need> needs_;
  mutable std::atomic<int64_t> plays_ = 0;
};

// A table in MiB with a row for each device and the copies between them; empty for one device.
std::string device_table(const Prediction& prediction, const Terminal& terminal);
// A JSON array, sizes in bytes.
std::string devices_json(const Prediction& prediction);

}  // namespace headroom
