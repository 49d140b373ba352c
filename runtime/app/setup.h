// The setup of a program: its options and its machine, as numbers. Knows no device and no graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// The strategy that was set in code, else that of the options.
StrategySettings strategy_of(const RunSetup& setup);

// What other processes hold of the default device, and what they leave.
int64_t others_bytes(const RunSetup& setup);
int64_t free_bytes(const RunSetup& setup);
// The GPU of that device; null for the CPU and on a machine without GPUs.
const PhysicalGpu* gpu_of(const RunSetup& setup, std::string_view device);

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

// Where a replica runs, or a program alone.
struct ReplicaDevices {
  DeviceName first;  // of nodes that name no device
  // Of a replica of several: how many it has, from `first` on, which its graph counts from /GPU:0. The graph
  // of a program alone names the devices as they are.
  std::optional<int> count = {};

  // The device that the graph calls so.
  DeviceName find(std::string_view in_graph) const;
  // "/GPU:2, /GPU:3"; of a program alone, the first one.
  std::string text() const;
};

// The devices of the replica of that rank: as many as the options place its net on, behind those of the ranks
// before. For one replica the device of the options. Throws InvalidArgument for a net that is placed on the
// CPU, of which all replicas have the same.
ReplicaDevices devices_of_replica(const RuntimeOptions& options, int replicas, int rank);
// The same for all replicas by rank. Throws as devices_of_replica does, and InvalidArgument when there are
// fewer GPUs, or the options name another GPU than the first.
std::vector<ReplicaDevices> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus,
                                            int replicas);

}  // namespace headroom
