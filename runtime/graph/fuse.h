// A pass that merges adjacent nodes into one where that is cheaper. Knows no device.
#pragma once

#include <span>

#include "runtime/graph/precision.h"

namespace headroom {

// Turns conv2d + bias + relu [+ max_pool] into conv_block nodes, dense + relu + dense + cross_entropy into
// classifier_head nodes, any other matmul by a matrix + bias [+ relu] into dense nodes and batch_norm [+
// residual] + relu into one batch_norm, each with its gradients, conv_bias [+ residual] [+ relu] into one
// conv_bias, the gradients of a batch norm and of the expanding convolution before it into one
// conv_norm_grad, if no other node reads the values in between. Transpositions that keep the order of
// elements become reshapes. Sums of gradients of slices that together are all of a value become concat.
// Elementwise nodes that remain are joined into expressions. The
// values in between then have no maker: name the ones to fetch in `keep`. Returns the number of blocks,
// heads, batch norms and dense layers made. Results differ by rounding only. A graph that is to be stored in
// 16 bits gets no conv_block and no classifier_head, whose kernels support only f32, and only such a graph
// gets conv_norm_grad.
int fuse(Graph& graph, std::span<const Value> keep = {}, Precision precision = Precision::kF32);

}  // namespace headroom
