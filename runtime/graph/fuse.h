// A graph pass: neighbours that are cheaper together become one node. Knows no device.
#pragma once

#include <span>

#include "runtime/graph/graph.h"

namespace headroom {

// Turns each conv2d + bias + relu [+ max_pool] into conv_block nodes, each dense + relu + dense +
// cross_entropy into a classifier_head and each other matmul + bias [+ relu] into a dense node, with what
// gradients() made of them, where nobody else reads the values in between. Those values then have no
// producer; name in `keep` the ones to fetch. Returns the number of blocks, heads and dense layers made.
// Results differ by rounding only.
int fuse(Graph& graph, std::span<const Value> keep = {});

}  // namespace headroom
