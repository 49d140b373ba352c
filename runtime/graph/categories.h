// What each value of a graph is, as recordings tell memory apart. Knows no plan and no device.
#pragma once

#include <vector>

#include "runtime/base/category.h"
#include "runtime/graph/graph.h"

namespace headroom {

// By value id. Weights are what an optimizer changes, averages that normalisation keeps and, in a graph
// without an optimizer, variables with an initial value; gradients are all that is made on the way back from
// a loss, and what else an op makes for that is an activation; counters and data are inputs.
std::vector<MemoryCategory> categorise(const Graph& graph);
// Of all variables of that category.
int64_t variable_bytes(const Graph& graph, MemoryCategory category);

}  // namespace headroom
