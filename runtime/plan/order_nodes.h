// Runs nodes of a step early that free more memory than they take. Knows no budget.
#pragma once

#include "runtime/plan/plan.h"

namespace headroom {

// Returns the nodes in that order; each still follows those that it reads from.
NeededNodes order_nodes(const Graph& graph, const Targets& targets, const NeededNodes& nodes);

}  // namespace headroom
