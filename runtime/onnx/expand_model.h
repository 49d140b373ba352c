// Writes the calls of a file's functions out as nodes, makes the initializers of graphs inside nodes the
// model's, and puts nodes after those that they read from. Knows no op.
#pragma once

#include <functional>
#include <string>

#include "runtime/onnx/model.h"

namespace headroom::onnx {

// Throws InvalidArgument for functions that call themselves, for more nodes than kMostNodes and for a cycle.
void expand_model(Model& model);

// The most nodes that functions, loops and scans of a file may stand for: a small file must not ask for much
// work.
inline constexpr int64_t kMostNodes = int64_t{1} << 16;

// Calls f(name) for each value that a node reads, also inside its bodies, of those outside it.
void for_each_read(const OnnxNode& node, const std::function<void(const std::string&)>& f);

}  // namespace headroom::onnx
