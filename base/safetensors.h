// Named tensors in a file: the safetensors format (Hugging Face), for the types of DType. Knows no graph.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor.h"

namespace headroom {

struct NamedTensor {
  std::string name;
  TensorSpec spec;
  std::vector<std::byte> data;  // spec.bytes() of them, row-major, little-endian
};

// Texts that a file may hold besides its tensors.
using TensorMetadata = std::map<std::string, std::string>;

struct TensorFile {
  std::vector<NamedTensor> tensors;  // in the order of their data
  TensorMetadata metadata;
};

// Writes all tensors to `path`, or leaves it as it was. Throws InvalidArgument when it cannot be written,
// when two tensors share a name, when a tensor's data and shape differ in size, or for a text that is not
// UTF-8.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      const TensorMetadata& metadata = {});

// Throws InvalidArgument naming the file and the tensor if the header does not follow the format, a dtype is
// not one of DType, or the data has gaps, overlaps, too few bytes or too many.
TensorFile load_safetensors(const std::string& path);

// A tensor in a mapped file, of any of the format's types ("F32", "I64", "BF16", ...).
struct StoredTensor {
  std::string name, type;
  std::vector<int64_t> extents;
  std::span<const std::byte> data;  // not aligned
};

// Returns views of all tensors of a file, in the order of their data. Throws as load_safetensors does, except
// for types.
std::vector<StoredTensor> view_safetensors(const MappedFile& file);

}  // namespace headroom
