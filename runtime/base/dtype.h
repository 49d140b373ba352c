// The element types of tensors. Knows nothing of shapes or devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom {

enum class DType : uint8_t { kF32, kI32, kU8 };

constexpr int64_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "f32", "i32", "u8".
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

// The DType of a C++ element type: dtype_of<float> is kF32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this element type");
  return DType::kF32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::kF32;
template <>
inline constexpr DType dtype_of<int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::kU8;

}  // namespace headroom
