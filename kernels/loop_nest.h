// A loop nest over N operands, each with its own strides, for broadcasting, slicing, transposing and
// reducing. Knows no element type and no op.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

#include "base/tensor.h"

namespace headroom {

using Strides = std::array<int64_t, Shape::kMaxRank>;

// Strides in elements that read `from` as if it were broadcast to the shape `to`: 0 along repeated axes.
inline Strides broadcast_strides(const Shape& from, const Shape& to) {
  const Strides dense = strides_of(from);
  Strides result{};
  const int shift = to.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (from[axis] != 1) result[static_cast<size_t>(axis + shift)] = dense[static_cast<size_t>(axis)];
  }
  return result;
}

// Strides that read `from` with its axes in the order of `axes`.
inline Strides transposed_strides(const Shape& from, std::span<const int> axes) {
  const Strides dense = strides_of(from);
  Strides result{};
  for (size_t axis = 0; axis < axes.size(); ++axis) result[axis] = dense[static_cast<size_t>(axes[axis])];
  return result;
}

// The offset of the element at `begin`.
inline int64_t offset_of(std::span<const int64_t> begin, const Strides& strides) {
  return std::inner_product(begin.begin(), begin.end(), strides.begin(), int64_t{0});
}

// Elements of table[i].
inline int64_t row_elements(const Shape& table) {
  return std::accumulate(table.begin() + 1, table.end(), int64_t{1}, std::multiplies());
}

// Rows along an axis: as many rows for each index of the axes before, of as many elements as the axes after
// have.
struct AxisRows {
  int64_t outer = 1, rows = 0, inner = 1;
  AxisRows(const Shape& shape, int axis) : rows(shape[axis]) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (i != axis) (i < axis ? outer : inner) *= shape[i];
    }
  }
};

// The leading axes of a batch of matrices.
inline Shape batch_of(const Shape& shape) {
  return Shape(std::span(shape.begin(), shape.end() - 2));
}

// broadcast_strides of an operand's batch, in elements.
inline Strides batch_strides(const Shape& operand, const Shape& batch) {
  Strides strides = broadcast_strides(batch_of(operand), batch);
  const int rank = operand.rank();
  for (int64_t& stride : strides) stride *= operand[rank - 2] * operand[rank - 1];
  return strides;
}

template <size_t N>
class LoopNest {
 public:
  using Offsets = std::array<int64_t, N>;

  // Loops over `extents`; operand n moves by strides[n][axis] elements per step of an axis. Drops axes of
  // extent 1 and joins neighbors that every operand crosses evenly, so that rows are as long as possible.
  LoopNest(const Shape& extents, const std::array<Strides, N>& strides) : empty_(extents.elements() == 0) {
    for (int axis = extents.rank() - 1; axis >= 0; --axis) {
      if (extents[axis] == 1) continue;
      Axis next{extents[axis], {}};
      for (size_t n = 0; n < N; ++n) next.strides[n] = strides[n][static_cast<size_t>(axis)];
      if (count_ > 0 && continues(axes_[count_ - 1], next)) {
        axes_[count_ - 1].extent *= next.extent;
      } else {
        axes_[count_++] = next;
      }
    }
  }

  // Extent of the innermost loop, and the step of each operand in it. One element has step 0.
  int64_t row_extent() const { return axes_[0].extent; }
  const Offsets& row_strides() const { return axes_[0].strides; }

  // Turns of all loops together.
  int64_t elements() const {
    int64_t count = empty_ ? 0 : 1;
    for (const Axis& axis : axes_) count *= axis.extent;
    return count;
  }
  // The loops, innermost first; at least one, of extent 1 for a single element.
  int axis_count() const { return std::max(1, static_cast<int>(count_)); }
  int64_t extent(int axis) const { return axes_[static_cast<size_t>(axis)].extent; }
  const Offsets& strides(int axis) const { return axes_[static_cast<size_t>(axis)].strides; }

  // Calls f(offsets) for every row: the offset in elements of the row's start in each operand.
  template <typename F>
  void for_each_row(F f) const {
    if (empty_) return;
    Offsets outer{};
    std::array<int64_t, Shape::kMaxRank> position{};
    for (;;) {
      Offsets row = outer;
      for (int64_t i = 0; i < axes_[1].extent; ++i) {
        f(row);
        for (size_t n = 0; n < N; ++n) row[n] += axes_[1].strides[n];
      }
      size_t axis = 2;
      for (; axis < count_; ++axis) {
        for (size_t n = 0; n < N; ++n) outer[n] += axes_[axis].strides[n];
        if (++position[axis] < axes_[axis].extent) break;
        for (size_t n = 0; n < N; ++n) outer[n] -= axes_[axis].extent * axes_[axis].strides[n];
        position[axis] = 0;
      }
      if (axis >= count_) return;
    }
  }

 private:
  struct Axis {
    int64_t extent = 1;
    Offsets strides{};
  };

  static bool continues(const Axis& inner, const Axis& outer) {
    for (size_t n = 0; n < N; ++n) {
      if (outer.strides[n] != inner.strides[n] * inner.extent) return false;
    }
    return true;
  }

  std::array<Axis, Shape::kMaxRank> axes_{};  // innermost first; unused ones have extent 1
  size_t count_ = 0;
  bool empty_;
};

}  // namespace headroom
