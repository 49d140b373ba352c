// Which nodes of a plan have to wait for which, from the memory that they read and write. Pure data; knows no
// device.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace headroom {

// What a node waits for, as positions in the list of nodes.
struct Waits {
  std::vector<int> after;           // of the same step
  std::vector<int> after_previous;  // of the step before, when the list is run step after step
};

// One entry for each of `nodes`, which are nodes of the plan in its order. A node waits for an earlier one
// when one of them writes bytes of the arena, or a variable, that the other reads or writes. What follows
// from other entries is left out. Throws InvalidArgument for a dynamic plan, whose addresses are not known.
std::vector<Waits> find_dependencies(const Graph& graph, const Plan& plan, std::span<const int> nodes);

}  // namespace headroom
