// Merges what exporters write as several nodes into the one op that it is: fewer kernels, and gradients that
// keep fewer results. The first two take `scalars`, the constants among the values by id, and leave alone
// what somebody else reads or `keep` names. Know no file.
#pragma once

#include <map>
#include <span>

#include "runtime/graph/graph.h"

namespace headroom::onnx {

// Elementwise nodes that together compute gelu of one value, exact or by tanh, become one node, in whatever
// order they do so: they are recognised by what they compute. Returns how many it made.
int merge_gelus(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep);

// where(isnan(softmax(x)), 0, softmax(x)), as exporters write attention, becomes one softmax. So does a
// softmax with the mask that is added before it, and with the scaling of what it is of. Returns how many it
// changed.
int merge_softmaxes(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep);

// Products of queries and keys whose softmax weighs values become one attention, which keeps no scores; so
// do the transpositions that bring heads to the front. Leaves alone what kernels do not take and masks whose
// gradient one of `parameters` needs. Returns how many it made.
int merge_attentions(Graph& graph, std::span<const Value> parameters, std::span<const Value> keep);

}  // namespace headroom::onnx
