// Finds which nodes of a plan wait for which, from the memory that they read and write. Knows no device.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace headroom {

// The nodes that a node waits for, as positions in the list of nodes.
struct Waits {
  std::vector<int> after;           // in the same step
  std::vector<int> after_previous;  // in the previous step, if the list runs step after step
};

// Returns an entry for each of `nodes`, which are nodes of the plan in its order. A node waits for an earlier
// one when one of them writes bytes of the arena, or a variable, that the other reads or writes. Leaves out
// what follows from other entries. Throws InvalidArgument for a dynamic plan, whose addresses are unknown.
std::vector<Waits> find_dependencies(const Graph& graph, const Plan& plan, std::span<const int> nodes);

}  // namespace headroom
