// Norms whose gradients read their normalised values in 8 bits, which wait for them in the place of the
// values that were normalised, and whose results the backward pass computes again with other roundings. Knows
// no device and no search.
#pragma once

#include <span>

#include "runtime/graph/graph.h"

namespace headroom {

// Rewrites a graph for training: each batch norm whose operand only its gradient needs later gives the codes
// of the normalised values (kernels/normal_code.h) beside its result, and the gradient reads those. What the
// backward pass reads of such a norm's result is computed from the codes, too. Gradients behind relu and a
// residual read a bit for each result. A norm behind a convolution of single pixels gets a node that computes
// both in one, for who wants its result again: nobody reads it yet (find_restorers() in given_again.h). The
// forward pass keeps its bits, gradients do not. `fetches` are read by the caller. Returns how many norms it
// changed; where that is 0 the graph stays as it is.
int compress_norms(Graph& graph, std::span<const Value> fetches);

}  // namespace headroom
