// Named tensors in a file: the safetensors format (Hugging Face), as far as DType goes. Knows no graph.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/tensor.h"

namespace headroom {

struct NamedTensor {
  std::string name;
  TensorSpec spec;
  std::vector<std::byte> data;  // spec.bytes() of them, row-major, little-endian
};

// Writes all tensors to `path`, or leaves it as it was. Throws InvalidArgument when it cannot be written,
// when two tensors share a name, or when a tensor's data and shape differ in size.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

// The tensors of a file, in the order of their data. Throws InvalidArgument naming the file and the tensor
// when the header is not what the format asks for, a dtype is not one of DType, or the data has gaps,
// overlaps, too few bytes or too many.
std::vector<NamedTensor> load_safetensors(const std::string& path);

}  // namespace headroom
