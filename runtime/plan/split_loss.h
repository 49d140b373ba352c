// The loss over many classes in parts of its rows, each with its logits and their gradient: the logits of one
// part are live at a time, and nothing is computed twice. Knows no device and no search.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/graph/graph.h"

namespace headroom {

// The bytes of the logits of a graph whose loss can be split: the cross-entropy of a product, whose gradient
// only products, and sums over the rows, read; 0 where there is none. `fetches` are read by the caller.
int64_t splittable_logits_bytes(const Graph& graph, std::span<const Value> fetches);

// Rewrites such a graph. The gradient of the product's weights is the sum over the parts, each rounded as it
// is stored; all else keeps its bits. Throws InvalidArgument for another graph.
void split_loss(Graph& graph, int parts, std::span<const Value> fetches);

}  // namespace headroom
