// Lowers the plans of a graph to traces: what their sessions ask each device for, in their order, and when
// they start libraries. Computes nothing and knows no strategy.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "answers/program.h"
#include "answers/workload.h"
#include "runtime/app/setup.h"

namespace headroom {

// The sessions of a replica, or of a program alone, over one graph, and where they run.
struct Replica {
  std::shared_ptr<const Graph> graph;
  std::vector<const Plan*> plans;  // plans of each session
  ReplicaDevices devices;
};

// Walks each plan for a step, as a session does. Replicas of one graph must have the same plans; they share
// its traces.
Traced lower(std::span<const Replica> replicas);
// Lowers planned programs, ordered by rank. The options say how many replicas each GPU holds, from the first
// GPU on; a single program is on the device that the options name.
Traced lower(std::span<const std::shared_ptr<const PlannedProgram>> ranks, const RuntimeOptions& options);

}  // namespace headroom
