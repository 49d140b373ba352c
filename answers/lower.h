// Lowers the plans of a graph to traces: what their sessions ask each device for, in their order, and when
// they start libraries. Computes nothing and knows no strategy.
#pragma once

#include <span>

#include "answers/program.h"
#include "answers/workload.h"
#include "runtime/app/setup.h"

namespace headroom {

// Lowers a planned program on these devices: walks each plan for a step, as its session does.
Traced lower(const Program& program, const ReplicaDevices& devices);
// Lowers planned programs, ordered by rank; those of one graph share its traces. The options say how many
// replicas each GPU holds, from the first GPU on; a single program is on the device that they name.
Traced lower(std::span<const Program> ranks, const RuntimeOptions& options);

}  // namespace headroom
