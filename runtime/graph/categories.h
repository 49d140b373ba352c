// The memory category of each value of a graph, as recordings report it. Knows no plan and no device.
#pragma once

#include <vector>

#include "base/memory_category.h"
#include "runtime/graph/graph.h"

namespace headroom {

// By value id. Weights are the variables that an optimizer trains, the averages that normalization keeps
// and, in a graph without an optimizer, variables with an initial value. Gradients are results of the
// backward pass, all other results are activations. Counters and data are inputs.
std::vector<MemoryCategory> categorize(const Graph& graph);
// The bytes of all variables of a category.
int64_t variable_bytes(const Graph& graph, MemoryCategory category);

}  // namespace headroom
