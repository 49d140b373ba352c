// Runs the replicas of a program as threads of one process, each on its own devices, or a single program.
// Knows no program.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "collective/device_collective.h"
#include "collective/in_process/in_process_collective.h"
#include "runtime/app/run_result.h"
#include "runtime/app/runtime.h"
#include "runtime/app/setup.h"
#include "runtime/graph/graph.h"
#include "runtime/session/device_set.h"

namespace headroom {

// The work of a replica, with its member of the group.
using ReplicaBody = std::function<void(int rank, std::unique_ptr<Collective> group)>;

// Calls `body` for each rank in its own thread, on one group, and returns when all have ended. Then rethrows
// the exception of the first rank that failed by itself, otherwise of the first that was told of another's
// failure. Throws InvalidArgument as make_in_process_group does.
void run_replicas(int replicas, std::chrono::milliseconds timeout, const ReplicaBody& body);

struct ReplicaPlace {
  // By device of the set; none for a single program.
  std::vector<std::unique_ptr<DeviceCollective>> collectives;
  DeviceSet devices;  // devices of the replica's graph
};
// Puts a graph on the devices of its replica. Makes the default device current in this thread. The arguments
// must outlive the result. Throws as place(), Runtime::device and make_device_collectives do.
ReplicaPlace settle_replica(Graph& graph, Runtime& runtime, const ReplicaDevices& devices, Collective* group);

// Calls `work`, which runs on these devices unless it lists others in the result, and writes its outcome and
// each device's memory to the result.
void run_replica(Runtime& runtime, const ReplicaDevices& devices, RunResult& result,
                 const std::function<void()>& work);

// The work of a replica in its own thread; a single program runs in the caller's thread, and `group` is null.
template <typename Result>
using ReplicaWork =
    std::function<void(int rank, const ReplicaDevices& devices, Collective* group, Result& result)>;

// Runs all replicas on their devices, each with a copy of `begin` as its result, and returns merge_replicas()
// of the results. Throws as replica_devices does, and, once all have ended, exceptions of a replica that
// attempt() does not catch.
template <typename Result>
Result run_on_devices(Runtime& runtime, int replicas, std::chrono::milliseconds timeout, const Result& begin,
                      const ReplicaWork<Result>& work) {
  const std::vector<ReplicaDevices> devices = replica_devices(runtime.options(), runtime.devices(), replicas);
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
