// The order of nodes that their data requires. Knows no plan and no memory.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/precedence.h"

namespace headroom {

// Returns the predecessors of each of `nodes`, as positions: the maker of a value comes before its readers,
// readers of a variable before the next update, and that before later readers. `nodes` are ids in an order in
// which they can run, each at most once, or -1 for no node. They include reshapes, which run nothing: a
// reshape neither has nor is a predecessor.
Predecessors find_predecessors(const Graph& graph, std::span<const int> nodes);

// Returns, by value, true if a node reads it.
std::vector<bool> read_values(const Graph& graph);

}  // namespace headroom
