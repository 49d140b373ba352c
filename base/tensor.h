// The description of a tensor, independent of who owns its bytes: its element type, shape and, in a view,
// address. Shapes are values and never allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

enum class DType : uint8_t { kF32, kI32, kU8, kBf16, kF16 };

constexpr int64_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// Returns true for floats stored in 16 bits. Kernels compute with such values as f32 and round what they
// store.
constexpr bool is_half(DType dtype) {
  return dtype == DType::kBf16 || dtype == DType::kF16;
}
constexpr bool is_real(DType dtype) {
  return dtype == DType::kF32 || is_half(dtype);
}

// "f32", "i32", "u8", "bf16", "f16".
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
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

// The number of axes. Throws InvalidArgument above Shape::kMaxRank.
size_t checked_axes(size_t count);

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // a scalar: rank 0, one element
  // Throws InvalidArgument for a negative extent, a rank above kMaxRank, or more elements than int64 counts.
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t elements() const;
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis)]; }
  // The extent of the last axis; 1 for a scalar.
  int64_t last() const { return rank_ == 0 ? 1 : extents_[static_cast<size_t>(rank_ - 1)]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  // Returns this shape with another extent for one axis.
  Shape with(int axis, int64_t extent) const;

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

// Numbers for the axes of a tensor, held by value as a Shape is. Throws InvalidArgument for more than
// Shape::kMaxRank of them.
template <typename T>
class PerAxis {
 public:
  PerAxis() = default;
  PerAxis(std::initializer_list<T> values) : PerAxis(std::span<const T>(values.begin(), values.size())) {}
  PerAxis(const std::vector<T>& values) : PerAxis(std::span<const T>(values)) {}
  explicit PerAxis(std::span<const T> values) : size_(checked_axes(values.size())) {
    for (size_t i = 0; i < size_; ++i) values_[i] = values[i];
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T operator[](size_t axis) const { return values_[axis]; }
  T& operator[](size_t axis) { return values_[axis]; }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }
  bool operator==(const PerAxis&) const = default;  // values past the last one are 0

 private:
  std::array<T, Shape::kMaxRank> values_{};
  size_t size_ = 0;
};

// "[64,26,26,32]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

// Row-major strides in elements, one per axis.
std::array<int64_t, Shape::kMaxRank> strides_of(const Shape& shape);

// Computes the shape that both broadcast to by NumPy's rule (aligned at the last axis, extents equal or 1).
// Returns false if there is none.
bool broadcast(const Shape& a, const Shape& b, Shape* result);

struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t bytes() const { return shape.elements() * element_bytes(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

// "f32[64,26,26,32]".
std::string to_string(const TensorSpec& spec);

// A dense row-major tensor in some device's memory; owns nothing. `data` is null for an optional output that
// is not read.
struct TensorView {
  void* data = nullptr;
  TensorSpec spec;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  const Shape& shape() const { return spec.shape; }
  int64_t elements() const { return spec.shape.elements(); }
};

}  // namespace headroom
