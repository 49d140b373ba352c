// The element types of ONNX and of safetensors files, and how their values become ours. Knows no tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace headroom::onnx {

// The numbers of TensorProto.DataType.
enum class ElementType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
  kUint4 = 21,  // two in a byte, the first in the lower half
  kInt4 = 22,
};

// "float", "int64"; "type 23" for one that is not read here.
std::string to_string(ElementType type);
// The type that a safetensors file calls so ("F32"); kUndefined for any other text.
ElementType type_of_safetensors(std::string_view name);
// Bits of one element as ONNX stores it; 0 for types that are not read here.
int64_t stored_bits(ElementType type);
// Bytes of so many elements in a row.
int64_t stored_bytes(ElementType type, int64_t count = 1);
// Returns the type of imported values: f32 for floats, u8 for bool and uint8, i32 for all other integers.
DType dtype_of_element(ElementType type);
bool is_float(ElementType type);
bool is_half(ElementType type);  // 16-bit floats
// Returns true if a file has the elements as imported values have them.
bool is_stored_as_ours(ElementType type);

// Converts `count` little-endian elements to our type's bytes. Integers beyond 32 bits become the nearest
// i32: they stand for "the end" in slices. Floats are rounded to f32.
std::vector<std::byte> convert_elements(ElementType type, std::span<const std::byte> data, int64_t count);

}  // namespace headroom::onnx
