#include "ops/movement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "ops/op_check.h"

namespace headroom {
namespace {

void check_slice(const OpCheck& c, const Shape& whole, const PerAxis<int64_t>& begin, const Shape& extents,
                 const PerAxis<int64_t>& steps) {
  c.require(static_cast<int>(begin.size()) == whole.rank() && extents.rank() == whole.rank() &&
                (steps.empty() || steps.size() == begin.size()),
            fmt::format("begin, extents and steps must have rank {}", whole.rank()));
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const int64_t first = begin[static_cast<size_t>(axis)];
    const int64_t step = steps.empty() ? 1 : steps[static_cast<size_t>(axis)];
    if (step != 1) {
      c.require(step != 0, "a step is 0");
      if (extents[axis] == 0) continue;
      // By division: the product may overflow.
      const int64_t way = extents[axis] - 1, room = step > 0 ? whole[axis] - 1 - first : first;
      const int64_t length = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
      c.require(first >= 0 && first < whole[axis] && (way == 0 || length <= room / way),
                fmt::format("{} from {} on by {} is outside axis {} of extent {}", extents[axis], first, step,
                            axis, whole[axis]));
      continue;
    }
    c.require(first >= 0 && extents[axis] <= whole[axis] && first <= whole[axis] - extents[axis],
              fmt::format("{} from {} on is outside axis {} of extent {}", extents[axis], first, axis,
                          whole[axis]));
  }
}

}  // namespace

Outputs Reshape::infer(const OpCheck& c) const {
  c.count(1);
  c.require(
      shape.elements() == c.shape(0).elements(),
      fmt::format("{} has {} elements, not {}", to_string(shape), shape.elements(), c.shape(0).elements()));
  return {{c.input(0).dtype, shape}};
}

Outputs CopyToDevice::infer(const OpCheck& c) const {
  c.count(1);
  return {c.input(0)};
}

std::optional<int> sliced_axis(const Shape& x, const Shape& slice, const PerAxis<int64_t>& steps) {
  if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; })) return {};
  std::optional<int> found;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x[axis] == slice[axis]) continue;
    if (found) return {};
    found = axis;
  }
  return found;
}

bool keeps_order(const Shape& x, std::span<const int> axes) {
  int last = -1;
  for (const int axis : axes) {
    if (x[axis] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

Outputs Transpose::infer(const OpCheck& c) const {
  c.count(1);
  const int rank = c.shape(0).rank();
  std::vector<int> sorted(axes.begin(), axes.end());
  std::ranges::sort(sorted);
  std::vector<int> expected(static_cast<size_t>(rank));
  std::iota(expected.begin(), expected.end(), 0);
  c.require(sorted == expected,
            fmt::format("axes [{}] are not a permutation of rank {}", fmt::join(axes, ","), rank));
  std::vector<int64_t> extents;
  for (int axis : axes) extents.push_back(c.shape(0)[axis]);
  return {{c.input(0).dtype, shape_of(extents)}};
}

Outputs Concat::infer(const OpCheck& c) const {
  c.require(c.size() >= 1, "takes at least one operand");
  const Shape& first = c.shape(0);
  c.require(axis >= 0 && axis < first.rank(), fmt::format("axis {} is outside rank {}", axis, first.rank()));
  int64_t extent = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    c.dtype(i, c.input(0).dtype);
    c.require(c.shape(i).rank() == first.rank() && c.shape(i).with(axis, 0) == first.with(axis, 0),
              fmt::format("operands may differ along axis {} only", axis));
    extent += c.shape(i)[axis];
  }
  return {{c.input(0).dtype, first.with(axis, extent)}};
}

Outputs Slice::infer(const OpCheck& c) const {
  c.count(1);
  check_slice(c, c.shape(0), begin, extents, steps);
  return {{c.input(0).dtype, extents}};
}

Outputs SliceGrad::infer(const OpCheck& c) const {
  c.count(1);
  check_slice(c, input_shape, begin, c.shape(0), steps);
  return {{c.input(0).dtype, input_shape}};
}

Outputs Gather::infer(const OpCheck& c) const {
  c.count(2);
  c.dtype(1, DType::kI32);
  c.require(c.shape(0).rank() >= 1, "the table must have rank 1 at least");
  c.require(padding_row < c.shape(0)[0] && padding_row <= (1 << 24), "the table has no such row of padding");
  c.require(c.shape(0).rank() - 1 + c.shape(1).rank() <= Shape::kMaxRank, "the result's rank is too high");
  return {{c.input(0).dtype, concatenated(extents_of(c.shape(1)), extents_of(c.shape(0)).subspan(1))}};
}

Outputs ReplaceRows::infer(const OpCheck& c) const {
  c.count(3);
  c.dtype(1, DType::kI32);
  c.rank(1, 1);
  c.require(axis >= 0 && axis < c.shape(0).rank(), fmt::format("there is no axis {}", axis));
  c.dtype(2, c.input(0).dtype);
  c.same_shape(2, c.shape(0).with(axis, c.shape(1)[0]));
  return {c.input(0)};
}

Outputs GatherGrad::infer(const OpCheck& c) const {
  c.count(2);
  c.dtype(0, DType::kF32);
  c.dtype(1, DType::kI32);
  c.require(table_shape.rank() >= 1, "the table must have rank 1 at least");
  c.same_shape(0, concatenated(extents_of(c.shape(1)), extents_of(table_shape).subspan(1)));
  return {f32(table_shape)};
}

Outputs TakeBatch::infer(const OpCheck& c) const {
  const bool ordered = c.size() == 3;
  if (!ordered) c.count(2);
  c.require(c.shape(0).rank() >= 1, "the table must have rank 1 at least");
  c.scalar(1, DType::kI32);
  if (ordered) {
    c.dtype(2, DType::kI32);
    c.rank(2, 1);
  }
  const int64_t rows = c.shape(ordered ? 2 : 0)[0];
  c.require(batch >= 1 && batch <= rows,
            fmt::format("the batch must be from 1 to the {} rows, got {}", rows, batch));
  if (scale) c.dtype(0, DType::kU8);
  return {{scale ? DType::kF32 : c.input(0).dtype, c.shape(0).with(0, batch)}};
}

Outputs BroadcastTo::infer(const OpCheck& c) const {
  c.count(1);
  Shape result;
  c.require(broadcast(c.shape(0), shape, &result) && result == shape,
            fmt::format("does not broadcast to {}", to_string(shape)));
  return {{c.input(0).dtype, shape}};
}

Outputs Fill::infer(const OpCheck& c) const {
  c.count(0);
  return {f32(shape)};
}

}  // namespace headroom
