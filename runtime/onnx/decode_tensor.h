// Decodes one tensor of an ONNX file. Knows no graph.
#pragma once

#include <protozero/pbf_reader.hpp>

#include "runtime/onnx/model.h"

namespace headroom::onnx {

// A TensorProto. Its data lies where the message does, or in `model.converted`; none is read from external
// files. Throws InvalidArgument or an exception of protozero without the file's name.
Tensor read_tensor(protozero::pbf_reader message, Model& model);

}  // namespace headroom::onnx
