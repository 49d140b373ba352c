// Results that a later node of the step gives again beside its own (BatchNormGrad::again): nodes that read
// them later need neither keep nor recompute them. Knows no memory and no time.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace headroom {

// By value: the value of the same bits that a later node gives; -1 if none does.
std::vector<int> find_given_again(const Graph& graph);

// By value: the node that restores it, nearly, for the backward pass (compress_norms.h); -1 if none does.
std::vector<int> find_restorers(const Graph& graph);

// An order of the same nodes in which readers of such results follow the node that gives them again, where
// nothing between waits for them. They hold their other operands that much longer.
NeededNodes with_readers_behind(const Graph& graph, const NeededNodes& nodes);

}  // namespace headroom
