// Reads an ONNX file with its external data, and weights from a safetensors file. Knows no graph of ours.
#pragma once

#include <span>
#include <string>

#include "runtime/onnx/model.h"

namespace headroom::onnx {

struct ReadModelSettings {
  std::string weights = {};  // a safetensors file: each of its tensors replaces the initializer of its name
};

// Maps and checks the file. Tensors whose external file is missing are absent, which is no error. Throws
// InvalidArgument of one line, naming the file, for one that is damaged or no ONNX file: data that ends
// early, impossible extents, two values of one name, a value that is read before it is made (a cycle),
// external data outside the model's folder.
Model read_model(const std::string& path, const ReadModelSettings& settings = {});

// Parses bytes that are in memory already and stay there; external data counts as missing.
Model parse_model(std::span<const std::byte> bytes, const std::string& name);

}  // namespace headroom::onnx
