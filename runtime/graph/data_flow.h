// What the flow of the data alone says about the order of nodes. Knows no plan and no memory.
#pragma once

#include <span>

#include "runtime/graph/ancestors.h"
#include "runtime/graph/graph.h"

namespace headroom {

// Which of `nodes` (ids in an order in which they can run, each at most once; -1 stands for no node) come
// before which, as positions: makers of a value before its readers, readers of a variable before what changes
// it, and that before later readers. Reshapes have to be among them, but they do nothing: none comes before
// anything, and nothing before it.
Ancestors find_ancestors(const Graph& graph, std::span<const int> nodes);

}  // namespace headroom
