#include "base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "base/tensor.h"

namespace headroom {

size_t checked_axes(size_t count) {
  if (count > Shape::kMaxRank) {
    throw InvalidArgument(
        fmt::format("rank {} is above the largest supported, {}", count, Shape::kMaxRank));
  }
  return count;
}

Shape::Shape(std::initializer_list<int64_t> extents)
    : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) {
  if (extents.size() > kMaxRank) {
    throw InvalidArgument(fmt::format("shape [{}]: rank {} is above the largest supported, {}",
                                      fmt::join(extents, ","), extents.size(), kMaxRank));
  }
  rank_ = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), extents_.begin());
  int64_t elements = 1;
  for (int64_t extent : extents) {
    if (extent < 0) throw InvalidArgument(fmt::format("shape {}: negative extent", to_string(*this)));
    // 2^59 elements of up to 4 bytes keep every size and offset in int64.
    // An extent of 0 does not excuse the others, or their strides would overflow.
    const int64_t factor = std::max<int64_t>(extent, 1);
    if (elements > (int64_t{1} << 59) / factor) {
      throw InvalidArgument(fmt::format("shape {}: too many elements", to_string(*this)));
    }
    elements *= factor;
  }
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int64_t extent : *this) n *= extent;
  return n;
}

Shape Shape::with(int axis, int64_t extent) const {
  std::array<int64_t, kMaxRank> extents = extents_;
  extents[static_cast<size_t>(axis)] = extent;
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank_)));
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ","));
}

std::array<int64_t, Shape::kMaxRank> strides_of(const Shape& shape) {
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
  return strides;
}

bool broadcast(const Shape& a, const Shape& b, Shape* result) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (int i = 0; i < rank; ++i) {
    const int axis_a = a.rank() - 1 - i, axis_b = b.rank() - 1 - i;
    const int64_t extent_a = axis_a >= 0 ? a[axis_a] : 1, extent_b = axis_b >= 0 ? b[axis_b] : 1;
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) return false;
    extents[static_cast<size_t>(rank - 1 - i)] = extent_a == 1 ? extent_b : extent_a;
  }
  *result = Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank)));
  return true;
}

std::string to_string(const TensorSpec& spec) {
  return fmt::format("{}{}", to_string(spec.dtype), to_string(spec.shape));
}

}  // namespace headroom
