// The options that all programs share: device, memory strategy, plan, placement, seed. Knows no command line
// syntax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "base/enum_names.h"
#include "device/device.h"
#include "device/host/backing.h"
#include "device/host/cpu_device.h"
#include "device/host/profiles.h"
#include "runtime/app/device_map.h"
#include "runtime/app/option_set.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {

// The policy for an op that reads a value of another device without a to_device: TensorFlow's device policy.
enum class DevicePolicy : uint8_t { kExplicit, kSilent };
constexpr auto value_names(DevicePolicy) {
  return std::to_array<std::string_view>({"explicit", "silent"});
}

constexpr auto value_names(LimitScope) {
  return std::to_array<std::string_view>({"pool", "process"});
}

// Permission for a memory budget to run the batch of a step in parts: sums then round in another order, and
// each batch normalization computes its statistics from a part.
enum class SplitBatch : uint8_t { kNever, kNeeded, kCheaper };
constexpr auto value_names(SplitBatch) {
  return std::to_array<std::string_view>({"never", "needed", "cheaper"});
}

// The strategy of a pool that grows, as TensorFlow's does with allow_growth.
inline constexpr const char* kGrowingStrategy = "allow-growth";

struct RuntimeOptions {
  // "cpu", "sim", "sim:PROFILE", "PROFILE" or "cuda"; the last three may end in ":N", the N-th GPU of the
  // machine.
  std::string device = "cpu";
  std::string strategy = "mapped";  // see parse_strategy
  bool strategy_is_given = false;   // by the user: see settle_strategy
  std::optional<int64_t> limit_bytes = {};
  LimitScope limit_scope = LimitScope::kPool;
  // The most that the process may take on the device: the strategy keeps to it, and a training step is
  // planned for it (answers/solve.h).
  std::optional<int64_t> memory_bytes = {};
  SplitBatch split_batch = SplitBatch::kNeeded;
  bool compress_norms = false;  // gradients of batch norms may read 8 bits (compress_norms.h)
  // The most page-locked host memory for values of a step planned so; none where not given. Replicas share
  // it.
  std::optional<int64_t> host_memory_bytes = {};
  std::optional<double> memory_fraction = {};
  bool allow_growth = false;
  bool libraries_first = false;  // start the libraries before the strategy takes memory
  PlanMode plan = PlanMode::kDynamic;
  int64_t seed = 1;
  std::string record = {};  // the file that records every allocation; none when empty
  std::vector<std::pair<std::string, std::string>> recorded_program = {};  // see record_program()

  // Changes to a simulated GPU's profile. On a real GPU a ballast makes the first two true.
  std::optional<int64_t> device_memory_bytes = {};
  std::optional<int64_t> others_bytes = {};
  std::optional<int64_t> context_bytes = {};
  int64_t gpus = 0;                // GPUs of the simulated machine; 0: as many as the profile has
  std::string others_by_gpu = {};  // "2:11000MiB/3:11000MiB"

  int64_t intra_op_threads = 0;  // host threads of one kernel; 0: as many as there are CPUs
  int64_t inter_op_threads = 0;  // kernels that the CPU runs side by side; 0: one after the other
  bool check_streams = false;    // find missing waits between the streams of a simulated GPU
  // Devices of a graph's nodes, see placement.h.
  std::string place = {};  // "dense=/GPU:1,dense_1=/GPU:1": name scopes and their devices
  DevicePolicy device_policy = DevicePolicy::kExplicit;
  bool allow_soft_placement = false;
  bool log_placement = false;

  std::string visible_devices = {};  // "1,2" or "none", CUDA's numbers; empty: all that CUDA shows
  std::string virtual_devices = {};  // "0:1024MiB,1024MiB": the number of a GPU and its devices' limits

  // Throws InvalidArgument for a malformed strategy, or one that contradicts other options.
  StrategySettings strategy_settings() const;
  PlacementSettings placement_settings() const;
};

// Adds the options that describe the machine and the part to use, from `device` to `virtual-devices`.
void add_device_options(OptionSet& set, RuntimeOptions& options);
// Adds one option for each field of `options`, whose values are the defaults. With `strategies` the option
// --strategy is a list and goes there.
void add_runtime_options(OptionSet& set, RuntimeOptions& options,
                         std::vector<std::string>* strategies = nullptr);

// Lets the recording of `record` name the program: "net" or "model", its name or file, its batch (0: that of
// the data) and the device of the options.
void record_program(RuntimeOptions& options, const std::string& kind, const std::string& name, int64_t batch);

// With --memory a step is packed into an arena of the strategy direct, unless others are given.
// Adds a note where options that only a budget uses are given without one.
void pack_for_memory(OptionSet& set, RuntimeOptions& options);

// "cpu", "sim", "sim:laptop-2gb", ..., "cuda", "cuda:0". Other numbers of GPUs are valid as well.
std::vector<std::string> device_names();
// Returns true for a GPU in every form of its name: "cuda:1", "sim:h200", "h200", "four-2080ti:2". Throws
// InvalidArgument for a name that is nearly a card's.
bool names_gpu(const std::string& name);
// N for "cuda:N", 0 for "cuda", nothing for any other text.
std::optional<int> cuda_ordinal(std::string_view device);
// The program's name of the device of the options: "/GPU:2" for "sim:four-2080ti:2".
DeviceName default_device(const RuntimeOptions& options);
// Returns the profile of the simulated GPU that the options name, with their changes; for "sim" with a total,
// the profile of the nearest card (see nearest_profile) without other processes. Returns nullopt for any
// other device. Throws InvalidArgument for an unknown profile.
std::optional<DeviceProfile> simulated_profile(const RuntimeOptions& options);
// The options with "sim" replaced by the name of its profile, which then stays the same if the total changes.
RuntimeOptions with_named_profile(RuntimeOptions options);

// The GPUs of the machine that the options name, the visible ones and their names; empty for the CPU.
// Initializes none, and works however full they are. Throws InvalidArgument for an unknown device (suggesting
// the nearest name), for a machine without GPUs, and for options that contradict the machine.
DeviceMap find_devices(const RuntimeOptions& options);
// Finds devices with other visible GPUs and virtual devices than in the options, see make_device_map.
DeviceMap find_devices(const RuntimeOptions& options, const std::optional<std::vector<int>>& wanted,
                       std::span<const GpuSizes> virtual_limits);

// The threads of the options; where these are 0, of TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS.
CpuThreads cpu_threads(const RuntimeOptions& options);
// The CPU, with those threads.
std::unique_ptr<Device> make_cpu(const RuntimeOptions& options);

// GPU `physical` of the map, which must be visible, under the name of its first logical GPU; not initialized.
// Throws InvalidArgument for memory that it cannot have.
std::unique_ptr<Device> make_gpu(const RuntimeOptions& options, const DeviceMap& map, int physical,
                                 Backing backing = Backing::kHostMemory);

// Replaces the default strategy by allow-growth if the device has no virtual memory. A strategy that the user
// gave stays, and making it throws.
void settle_strategy(RuntimeOptions& options, Device& device);

// The device that the options name, not initialized. Throws as the two above do, and InvalidArgument for a
// GPU that does not exist or is not visible.
std::unique_ptr<Device> make_device(const RuntimeOptions& options, Backing backing = Backing::kHostMemory);

}  // namespace headroom
