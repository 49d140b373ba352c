// Shapes: the extents of a dense, row-major tensor, held by value without touching the heap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace headroom {

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

  // The same shape with one axis set to another extent.
  Shape with(int axis, int64_t extent) const;

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

// "[64,26,26,32]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

// Row-major strides in elements, one per axis.
std::array<int64_t, Shape::kMaxRank> strides_of(const Shape& shape);

// The shape that both broadcast to by NumPy's rule (aligned at the last axis, extents equal or 1).
// Returns false when there is none.
bool broadcast(const Shape& a, const Shape& b, Shape* result);

}  // namespace headroom
