// The settings that all programs share: device, memory strategy, plan and seed. Knows no command line syntax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "runtime/app/device_map.h"
#include "runtime/app/option_set.h"
#include "runtime/base/enum_names.h"
#include "runtime/device/device.h"
#include "runtime/device/host/backing.h"
#include "runtime/device/host/cpu_device.h"
#include "runtime/device/host/profiles.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {

// Whether an op may read a value of another device without a to_device: TensorFlow's device policy.
enum class DevicePolicy : uint8_t { kExplicit, kSilent };
template <>
struct EnumNames<DevicePolicy> {
  static constexpr std::array<std::string_view, 2> kNames = {"explicit", "silent"};
};

template <>
struct EnumNames<LimitScope> {
  static constexpr std::array<std::string_view, 2> kNames = {"pool", "process"};
};

struct RuntimeOptions {
  // "cpu", "sim", "sim:PROFILE" or "cuda"; the last two with ":N" for another GPU of the machine than the
  // first, counted as the program names them.
  std::string device = "cpu";
  std::string strategy = "allow-growth";  // see parse_strategy
  std::optional<int64_t> limit_bytes = {};
  LimitScope limit_scope = LimitScope::kPool;
  std::optional<double> memory_fraction = {};
  bool allow_growth = false;
  bool libraries_first = false;  // start the libraries before the strategy takes memory
  PlanMode plan = PlanMode::kDynamic;
  int64_t seed = 1;
  std::string record = {};  // where what is asked of the strategy is written; nowhere when empty

  // What a simulated GPU's profile is changed to. On a real one the first two are held for real.
  std::optional<int64_t> device_memory_bytes = {};
  std::optional<int64_t> others_bytes = {};
  std::optional<int64_t> context_bytes = {};
  int64_t gpus = 0;                // of the simulated machine; the profile's when 0
  std::string others_by_gpu = {};  // "2:11000MiB/3:11000MiB"

  int64_t intra_op_threads = 0;  // of the host, for one kernel that runs there; 0: as many as there are CPUs
  int64_t inter_op_threads = 0;  // kernels that the CPU runs side by side; 0: one after the other
  bool check_streams = false;    // find waits that are missing between the streams of a simulated GPU
  // Where nodes of a graph run, see placement.h.
  std::string place = {};  // "dense=/GPU:1,dense_1=/GPU:1": name scopes and their devices
  DevicePolicy device_policy = DevicePolicy::kExplicit;
  bool allow_soft_placement = false;
  bool log_placement = false;

  std::string visible_devices = {};  // "1,2" or "none", CUDA's numbers; all that CUDA shows when empty
  std::string virtual_devices = {};  // "0:1024MiB,1024MiB": their limits, by the number of the GPU

  // Throws InvalidArgument for a strategy that is malformed or contradicts the options beside it.
  StrategySettings strategy_settings() const;
  PlacementSettings placement_settings() const;
};

// Adds the options that say what machine there is and what is used of it, from `device` to `virtual-devices`.
void add_device_options(OptionSet& set, RuntimeOptions& options);
// Adds one option for each field, which `options` (with its defaults) receives when `set` parses. With
// `strategies` the option of that name takes any number, which go there.
void add_runtime_options(OptionSet& set, RuntimeOptions& options,
                         std::vector<std::string>* strategies = nullptr);

// "cpu", "sim", "sim:laptop-2gb", ..., "cuda", "cuda:0"; any other number of a GPU will do, too.
std::vector<std::string> device_names();
// The N of "cuda:N", 0 of "cuda"; nothing for any other text.
std::optional<int> cuda_ordinal(std::string_view device);
// What the program calls the device that the options name: "/GPU:2" of "sim:four-2080ti:2".
DeviceName default_device(const RuntimeOptions& options);
// The options with GPU `ordinal` of the machine that they name as the device.
RuntimeOptions with_gpu(RuntimeOptions options, int ordinal);
// The simulated GPU that the options name, changed as they say; nothing for any other device. Throws
// InvalidArgument for an unknown profile.
std::optional<DeviceProfile> simulated_profile(const RuntimeOptions& options);

// The GPUs of the machine that the options name, what is visible of them and what that is called; empty for
// the CPU. Initialises none and works however full they are. Throws InvalidArgument for an unknown device
// (with the nearest known as a suggestion), for a machine without GPUs, and for options that do not fit it.
DeviceMap find_devices(const RuntimeOptions& options);
// The same with other GPUs visible and cut up than the options say, see make_device_map.
DeviceMap find_devices(const RuntimeOptions& options, const std::optional<std::vector<int>>& wanted,
                       std::span<const GpuSizes> virtual_limits);

// The threads that the options ask for; where they leave it open, what TF_NUM_INTRAOP_THREADS and
// TF_NUM_INTEROP_THREADS of the environment say.
CpuThreads cpu_threads(const RuntimeOptions& options);
// The CPU, with those threads.
std::unique_ptr<Device> make_cpu(const RuntimeOptions& options);

// GPU `physical` of the map, which must be visible, named as the first of what is on it; not initialised.
// A simulated one lies in host memory, or nowhere. Throws InvalidArgument for memory that it cannot have.
std::unique_ptr<Device> make_gpu(const RuntimeOptions& options, const DeviceMap& map, int physical,
                                 Backing backing = Backing::kHostMemory);

// The device that the options name, not initialised. Throws what the two above throw, and InvalidArgument for
// a GPU that is not there or not visible.
std::unique_ptr<Device> make_device(const RuntimeOptions& options, Backing backing = Backing::kHostMemory);

}  // namespace headroom
