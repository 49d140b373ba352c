// The rules of fuse(), in the order in which fuse() applies them.
#pragma once

#include <span>

#include "runtime/graph/graph.h"

namespace headroom {

// Turns two dense layers with relu between, their cross-entropy and its gradient back to the first
// layer's input into classifier_head nodes. Returns their number. The gradients of the weights stay
// separate nodes, since only the update waits for them.
int fuse_classifier_heads(Graph& graph, std::span<const Value> keep);

// Turns conv2d + bias + relu [+ max_pool], with their gradients, into conv_block nodes. Returns the number of
// blocks.
int fuse_conv_blocks(Graph& graph, std::span<const Value> keep);

// Lets conv_bias nodes include the following residual and the relu after it. Returns the number of those that
// do.
int fuse_conv_biases(Graph& graph, std::span<const Value> keep);

// Lets batch norms include the following residual and the relu after it, with their gradients, which add
// those of two branches. Returns the number of batch norms that do.
int fuse_batch_norms(Graph& graph, std::span<const Value> keep);

// Turns the gradients of a batch norm and of the convolution of single pixels before it into one node, which
// does not read the convolution's result (what arrives over two branches is added up by a branch_grad before
// it), where that is much wider than what the convolution reads. After fuse_batch_norms().
void fuse_conv_norm_gradients(Graph& graph, std::span<const Value> keep);

// Lets the gradient of a layer norm or of a max pool add the gradient that comes past it.
void fuse_residual_gradients(Graph& graph, std::span<const Value> keep);

// Turns matmul by a matrix + bias or residual or both [+ relu] into dense nodes, and the gradients of the weights
// and the bias of a layer of matrices into dense_filter_grad nodes. Returns the number of dense nodes.
int fuse_dense_layers(Graph& graph, std::span<const Value> keep);

// Joins elementwise nodes of one shape, and the broadcasts of what they read, into expression nodes: a value
// is computed where it is read, by each of its readers, if all of them are elementwise or reductions and that
// moves fewer bytes than storing it. Slices, concatenations and gradients of slices are windows of operands. What then waits for the backward pass is no more than before. After all other rules.
void fuse_expressions(Graph& graph, std::span<const Value> keep);

}  // namespace headroom
