// Exporters write gelu as a handful of elementwise nodes, whose gradients keep as many results. Knows no
// file.
#pragma once

#include <map>
#include <span>

#include "runtime/graph/graph.h"

namespace headroom::onnx {

// Makes one gelu or tanh_gelu node of elementwise nodes that together compute it of one value, in whatever
// order they do so: they are recognised by what they compute. `scalars` are the constants among the values,
// by id. Nodes whose results somebody else reads, or that `keep` names, stay. Returns how many it made.
int merge_gelus(Graph& graph, const std::map<int, float>& scalars, std::span<const Value> keep);

}  // namespace headroom::onnx
