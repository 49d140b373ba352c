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
  DeviceProfile device;  // profile of each GPU, or of the only device if there are none
  // The machine's GPUs, with the bytes of other processes in `used_bytes`; none for the CPU and for a trace.
  DeviceMap gpus = {};
  RuntimeOptions options;
  std::optional<StrategySettings> strategy = {};  // set in code, in place of the options'
  int64_t batch = 0;                              // 0: the batch cannot change
  int64_t batch_unit = 1;  // the replicas that share the batch, which it is a multiple of
  bool has_plan = false;   // true if options.plan matters
};

// The setup of the options: a simulated machine as they describe it, or the real one as its driver describes
// it now. Treats a real GPU as an H200 with its total, and a CPU as a device without context and libraries.
// Makes no context. Throws as find_devices does.
RunSetup setup_of(const RuntimeOptions& options);
// Returns the setup with these GPUs.
RunSetup setup_of(const RuntimeOptions& options, DeviceMap gpus);

// The strategy that was set in code, else that of the options.
StrategySettings strategy_of(const RunSetup& setup);

// Bytes that other processes hold on the default device, and bytes that they leave.
int64_t others_bytes(const RunSetup& setup);
int64_t free_bytes(const RunSetup& setup);
// The GPU of that device; null for the CPU and on a machine without GPUs.
const PhysicalGpu* gpu_of(const RunSetup& setup, std::string_view device);

// Lowers a budget (--memory) above the device's free memory to that. If it did, returns a note about it,
// without a line end. Throws as setup_of does.
std::optional<std::string> lower_memory_to_free(RuntimeOptions& options);

// The profile of a CPU, with unlimited memory by default.
DeviceProfile cpu_profile(int64_t total_bytes = int64_t{1} << 50);

// The options with another limit, in the option or strategy that sets the present one; nothing when none
// does.
std::optional<RuntimeOptions> with_limit(RuntimeOptions options, int64_t bytes);
// The options with `bytes` more held by other processes on every GPU.
RuntimeOptions with_more_held(RuntimeOptions options, const DeviceMap& gpus, int64_t bytes);

// The devices of a replica, or of a single program.
struct ReplicaDevices {
  DeviceName first;  // device of nodes that name no device
  // For one of several replicas: its number of devices, from `first` on, which its graph counts from /GPU:0.
  // The graph of a single program uses the devices' own names.
  std::optional<int> count = {};

  // The device that the graph calls so.
  DeviceName find(std::string_view in_graph) const;
  // Formats as "/GPU:2, /GPU:3"; for a single program, the first one.
  std::string text() const;
};

// Returns the devices of the replica of that rank: as many as the options place its net on, after those of
// the ranks before. For one replica, the device of the options. Throws InvalidArgument for a net that is
// placed on the CPU, which all replicas would share.
ReplicaDevices devices_of_replica(const RuntimeOptions& options, int replicas, int rank);
// Returns the devices of all replicas by rank. Throws as devices_of_replica does, and InvalidArgument if
// there are fewer GPUs, or the options name another GPU than the first.
std::vector<ReplicaDevices> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus,
                                            int replicas);

}  // namespace headroom
