// The order of nodes that their data requires. Knows no plan and no memory.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/ancestors.h"
#include "runtime/graph/graph.h"

namespace headroom {

// The ancestors of each of `nodes`, as positions: the maker of a value is an ancestor of its readers,
// readers of a variable are ancestors of the next update, and that of later readers. `nodes` are ids in
// an order in which they can run, each at most once, or -1 for no node. They include the reshapes, which
// run nothing: a reshape is no ancestor and has none.
Ancestors find_ancestors(const Graph& graph, std::span<const int> nodes);

// By value: whether a node reads it.
std::vector<bool> read_values(const Graph& graph);

}  // namespace headroom
