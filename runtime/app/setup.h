// What a program runs in: its options, and a machine that is known by its numbers alone. Knows no device and
// no graph but to place it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/app/device_map.h"
#include "runtime/app/options.h"

namespace headroom {

struct RunSetup {
  DeviceProfile device;  // what each GPU is like, or the one device where there is no map
  // The machine's GPUs, with what others hold of each in `used_bytes`; none for the CPU and for a trace.
  DeviceMap gpus = {};
  RuntimeOptions options;
  std::optional<StrategySettings> strategy = {};  // in place of the options', where it was set in code
  int64_t batch = 0;                              // 0: there is none to change
  int64_t batch_unit = 1;                         // of which it is a multiple: the replicas that share it
  bool has_plan = false;                          // whether options.plan means anything
};

// That of the options: of a simulated machine as they say, of a real one as its driver says now. A real GPU
// is taken for an H200 with its total, a CPU for a device without context and libraries. Makes no context.
// Throws what find_devices throws.
RunSetup setup_of(const RuntimeOptions& options);
// The same of GPUs that are known.
RunSetup setup_of(const RuntimeOptions& options, DeviceMap gpus);

// What a CPU is like whose strategy takes from the host: of no end where `total_bytes` is not given.
DeviceProfile cpu_profile(int64_t total_bytes = int64_t{1} << 50);

// The options with another limit, wherever they give the present one; nothing where they give none.
std::optional<RuntimeOptions> with_limit(RuntimeOptions options, int64_t bytes);
// The options with `bytes` more of every GPU held by others.
RuntimeOptions with_more_held(RuntimeOptions options, const DeviceMap& gpus, int64_t bytes);

// Throws InvalidArgument, saying what to do instead, for several replicas of a net that the options place.
void require_whole_replicas(int replicas, const RuntimeOptions& options);
// The devices of so many replicas, in rank order: the first logical GPUs, or what the options name for one.
// Throws InvalidArgument when there are fewer, or the options name another than the first, and what
// require_whole_replicas throws.
std::vector<DeviceName> replica_devices(const RuntimeOptions& options, const DeviceMap& gpus, int replicas);

}  // namespace headroom
