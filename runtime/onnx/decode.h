// Decodes the protobuf messages of an ONNX file into a Model. Checks each message separately. Knows no file.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/onnx/model.h"

namespace headroom::onnx {

// Fills `model`, whose tensors point into `bytes`. Throws InvalidArgument without the file's name.
void decode_model(std::span<const std::byte> bytes, Model& model);

// A TensorProto by itself, as the cases of ONNX's conformance tests are stored. Its data lies in `bytes`, or
// in `model.converted`.
Tensor decode_tensor(std::span<const std::byte> bytes, Model& model);

}  // namespace headroom::onnx
