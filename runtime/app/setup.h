// The setup of a program: its options and its machine, as numbers. Knows no device and no graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/app/device_map.h"
#include "runtime/app/options.h"

namespace headroom {

struct RunSetup {
  DeviceProfile device;  // of each GPU, or of the only device where there are none
  // The machine's GPUs, with the bytes of other processes in `used_bytes`; none for the CPU and for a trace.
  DeviceMap gpus = {};
  RuntimeOptions options;
  std::optional<StrategySettings> strategy = {};  // set in code, in place of the options'
  int64_t batch = 0;                              // 0: the batch cannot change
  int64_t batch_unit = 1;  // the replicas that share the batch, which it is a multiple of
  bool has_plan = false;   // whether options.plan matters
};

// The setup of the options: a simulated machine as they describe it, or the real one as its driver describes
// it now. Treats a real GPU as an H200 with its total, and a CPU as a device without context and libraries.
// Makes no context. Throws as find_devices does.
RunSetup setup_of(const RuntimeOptions& options);
// The same with these GPUs.
RunSetup setup_of(const RuntimeOptions& options, DeviceMap gpus);

// What other processes leave of the default device, in whole pages.
int64_t free_bytes(const RunSetup& setup);

// Lowers a budget (--memory) above what the device has free to that. Returns a note that says so, without an
// end, if it did. Throws as setup_of does.
std::optional<std::string> lower_memory_to_free(RuntimeOptions& options);

// The profile of a CPU, with unlimited memory by default.
DeviceProfile cpu_profile(int64_t total_bytes = int64_t{1} << 50);

// The options with another limit, in the option or strategy that sets the present one; nothing when none
// does.
std::optional<RuntimeOptions> with_limit(RuntimeOptions options, int64_t bytes);
// The options with `bytes` more held by other processes on every GPU.
RuntimeOptions with_more_held(RuntimeOptions options, const DeviceMap& gpus, int64_t bytes);

// Throws InvalidArgument for several replicas of a net that the options place, and says what to do instead.
void require_whole_replicas(int replicas, const RuntimeOptions& options);
// The devices of the replicas by rank: the first logical GPUs, or for one replica the device of the options.
// Throws InvalidArgument when there are fewer GPUs, or the options name another GPU than the first, and as
// require_whole_replicas does.
std::vector<DeviceName> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus, int replicas);

}  // namespace headroom
