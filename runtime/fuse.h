// A graph pass: neighbours that are cheaper together become one node. Knows no device.
#pragma once

#include <span>

#include "runtime/graph.h"

namespace headroom {

// Turns each conv2d + bias + relu [+ max_pool], with what gradients() made of them, into conv_block nodes,
// where nobody else reads the values in between. Those values then have no producer; name in `keep` the ones
// to fetch. Returns the number of blocks made. Results differ by rounding only.
int fuse(Graph& graph, std::span<const Value> keep = {});

}  // namespace headroom
