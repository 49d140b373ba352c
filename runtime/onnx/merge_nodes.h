// Merges several nodes that exporters write into one op: fewer kernels, and gradients that keep fewer
// results. The first two take `scalars`, the constants among the values by id, and do not change values that
// other nodes read or `keep` names. Know no file.
#pragma once

#include <map>
#include <span>

#include "runtime/graph/graph.h"

namespace headroom::onnx {

// Merges elementwise nodes that together compute gelu of one value, exact or by tanh, into one node, in any
// order: they are recognized by their result. Returns the number of gelus made.
int merge_gelus(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep);

// Replaces where(isnan(softmax(x)), 0, softmax(x)), as exporters write attention, by one softmax. Also merges
// a softmax with the mask added before it, and with the scaling of its operand. Returns the number of
// changes.
int merge_softmaxes(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep);

// Merges products of queries and keys whose softmax weights values into one attention, which keeps no scores,
// together with the transpositions that bring heads to the front. Does not merge what kernels do not support,
// nor masks whose gradient one of `parameters` needs. Keys and values of which a step replaces a few rows
// stay where they are; with `only_cached` only such attentions are made. Returns the number of attentions
// made.
int merge_attentions(Graph& graph, std::span<const Value> parameters, std::span<const Value> keep,
                     bool only_cached = false);

}  // namespace headroom::onnx
