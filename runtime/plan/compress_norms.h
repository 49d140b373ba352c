// Norms whose gradients read their normalized values in 8 bits, which wait for them in the place of the
// values that were normalized, and whose results the backward pass computes again with other roundings. Knows
// no device and no search.
#pragma once

#include <span>

#include "runtime/graph/graph.h"

namespace headroom {

// Rewrites a graph for training: each batch norm whose operand only its gradient needs later also gives the
// codes of the normalized values (kernels/normal_code.h), and the gradient reads those. Values that the
// backward pass reads of such a norm's result are also computed from the codes. Gradients after relu and a
// residual read a bit for each result. A norm after a convolution of single pixels gets a node that computes
// both, for nodes that need its result again: it has no readers yet (find_restorers() in given_again.h). The
// forward pass keeps its bits, gradients do not. `fetches` are read by the caller. Returns the number of
// changed norms; if it is 0, the graph is unchanged.
int compress_norms(Graph& graph, std::span<const Value> fetches);

}  // namespace headroom
