// The replicas of a program as threads of one process, each on a device of its own, or the program alone.
// Knows no program.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/app/run_result.h"
#include "runtime/app/runtime.h"
#include "runtime/app/setup.h"
#include "runtime/collective/device_collective.h"
#include "runtime/collective/in_process/in_process_collective.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

// What a replica does; its end of the group dies with the argument.
using ReplicaBody = std::function<void(int rank, std::unique_ptr<Collective> group)>;

// Calls `body` for each rank in a thread of its own, on one group, and returns when all of them have ended.
// Then throws what one of them threw: the first by rank, of those that were not only told that another has
// failed. Throws InvalidArgument as make_in_process_group does.
void run_replicas(int replicas, std::chrono::milliseconds timeout, const ReplicaBody& body);

// Where the graph of one replica runs, and by what it sums with the others; null for one alone.
struct ReplicaPlace {
  DeviceSet devices;
  std::unique_ptr<DeviceCollective> collective;
};
// A replica of a group is whole on the device of that name; alone its graph is placed by the runtime's rules.
// The default device is initialised and current in this thread. All must outlive what is returned. Throws
// what place(), Runtime::device and make_device_collective throw.
ReplicaPlace settle_replica(Graph& graph, Runtime& runtime, const DeviceName& name, Collective* group);

// Calls `work`, which runs on the devices that it notes in the result, or on that one, and notes how that
// ended and what it took.
void run_replica(Runtime& runtime, const DeviceName& name, RunResult& result,
                 const std::function<void()>& work);

// What one of the replicas runs, in a thread of its own; `group` is null for one alone, in the caller's
// thread.
template <typename Result>
using ReplicaWork =
    std::function<void(int rank, const DeviceName& device, Collective* group, Result& result)>;

// Runs all replicas on their devices; each begins with the result as it is. What they came to, see
// merge_replicas. Throws what replica_devices throws, and of a replica what is no ending, once all have
// ended.
template <typename Result>
Result run_on_devices(Runtime& runtime, int replicas, std::chrono::milliseconds timeout, const Result& begin,
                      const ReplicaWork<Result>& work) {
  const std::vector<DeviceName> devices = replica_devices(runtime.options(), runtime.devices(), replicas);
  std::vector<Result> results(devices.size(), begin);
  const auto run = [&](int rank, Collective* group) {
    const auto i = static_cast<size_t>(rank);
    run_replica(runtime, devices[i], results[i], [&] { work(rank, devices[i], group, results[i]); });
  };
  if (replicas == 1) {
    run(0, nullptr);
  } else {
    run_replicas(replicas, timeout,
                 [&](int rank, std::unique_ptr<Collective> group) { run(rank, group.get()); });
  }
  return merge_replicas(results);
}

}  // namespace headroom
