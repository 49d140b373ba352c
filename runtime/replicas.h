// The replicas of a training as threads of one process, each on a device of its own. Knows no training.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/in_process/in_process_collective.h"
#include "runtime/runtime.h"

namespace headroom {

// The devices of so many replicas, in rank order: the first logical GPUs, or what the options name for one.
// Throws InvalidArgument when there are fewer, or the options name another than the first.
std::vector<DeviceName> replica_devices(const Runtime& runtime, int replicas);

// "replica 1 on /GPU:1", of a replica that failed.
std::string name_replica(int rank);

// What a replica does; its end of the group dies with the argument.
using ReplicaBody = std::function<void(int rank, std::unique_ptr<Collective> group)>;

// Calls `body` for each rank in a thread of its own, on one group, and returns when all of them have ended.
// Then throws what one of them threw: the first by rank, of those that were not only told that another has
// failed. Throws InvalidArgument as make_in_process_group does.
void run_replicas(int replicas, std::chrono::milliseconds timeout, const ReplicaBody& body);

}  // namespace headroom
