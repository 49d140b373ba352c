#include "ops/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op_check.h"

namespace headroom {
namespace {

Shape reduced(const OpCheck& check, const Shape& x, const PerAxis<int>& axes, bool keep) {
  check.require(std::ranges::is_sorted(axes) && std::ranges::adjacent_find(axes) == axes.end(),
                "axes must be sorted and distinct");
  std::vector<int64_t> extents;
  for (int axis : axes) {
    check.require(axis >= 0 && axis < x.rank(), fmt::format("axis {} is outside rank {}", axis, x.rank()));
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool reduce = std::ranges::binary_search(axes, axis);
    if (!reduce) extents.push_back(x[axis]);
    if (reduce && keep) extents.push_back(1);
  }
  return shape_of(extents);
}

// Checks `n` operands: operand `codes` is u8, the others are f32.
void check_floats_and_codes(const OpCheck& c, size_t n, size_t codes) {
  c.count(n);
  for (size_t i = 0; i < n; ++i) c.dtype(i, i == codes ? DType::kU8 : DType::kF32);
}

// A bit for each element.
Shape marks_of(const OpCheck& c, const Shape& shape) {
  c.require(shape.last() % 8 == 0, "results are marked in eights of channels");
  return shape.with(shape.rank() - 1, shape.last() / 8);
}

void check_labels(const OpCheck& c) {
  c.dtype(0, DType::kF32);
  c.rank(0, 2);
  c.dtype(1, DType::kI32);
  c.same_shape(1, {c.shape(0)[0]});
  c.require(c.shape(0)[1] > 0, "there are no classes");
}

void check_channels(const OpCheck& c, size_t image, std::initializer_list<size_t> vectors) {
  c.require(c.shape(image).rank() >= 2, "the image must have rank 2 at least");
  c.require(c.shape(image).elements() > 0, "the image is empty");
  for (size_t i : vectors) c.same_shape(i, {c.shape(image).last()});
}

void check_classes(const OpCheck& c, int64_t classes) {
  c.require(classes >= 0 && classes <= c.shape(0).last(), "there are not as many columns as classes");
}

}  // namespace

Outputs Reduce::infer(const OpCheck& c) const {
  c.floats(1);
  if (kind != ReduceKind::kSum) {
    for (int axis : axes) {
      if (axis >= 0 && axis < c.shape(0).rank())
        c.require(c.shape(0)[axis] > 0, "nothing to reduce along an axis");
    }
  }
  return {f32(reduced(c, c.shape(0), axes, keep_axes))};
}

Outputs ReduceMaxGrad::infer(const OpCheck& c) const {
  c.floats(3);
  const Shape kept = reduced(c, c.shape(0), axes, true);
  c.same_shape(1, kept);
  c.same_shape(2, kept);
  return {c.input(0)};
}

Outputs AllFinite::infer(const OpCheck& c) const {
  c.require(c.size() >= 1, "takes at least one operand");
  for (size_t i = 0; i < c.size(); ++i) {
    if (!is_half(c.input(i).dtype)) c.dtype(i, DType::kF32);
  }
  return {u8({})};
}

Outputs ArgMax::infer(const OpCheck& c) const {
  c.floats(1);
  const Shape result = reduced(c, c.shape(0), {axis}, false);
  c.require(c.shape(0)[axis] > 0, "nothing to compare along the axis");
  return {i32(result)};
}

Outputs Accuracy::infer(const OpCheck& c) const {
  c.count(2);
  check_labels(c);
  c.require(c.shape(0)[0] > 0, "there are no rows");
  return {f32({})};
}

Outputs Softmax::infer(const OpCheck& c) const {
  c.floats(c.size() == 2 ? 2 : 1);
  c.require(c.shape(0).rank() >= 1, "takes rank 1 at least");
  if (c.size() == 2) {
    Shape both;
    const bool broadcasts = broadcast(c.shape(1), c.shape(0), &both) && both == c.shape(0);
    c.require(broadcasts && c.shape(1).last() == c.shape(0).last(), "the mask does not broadcast to x");
  }
  return {c.input(0)};
}

Outputs SoftmaxGrad::infer(const OpCheck& c) const {
  c.floats(2);
  c.same_shape(1, c.shape(0));
  return {c.input(0)};
}

Outputs CrossEntropy::infer(const OpCheck& c) const {
  c.count(2);
  check_labels(c);
  check_classes(c, classes);
  return {f32({c.shape(0)[0]})};
}

Outputs CrossEntropyGrad::infer(const OpCheck& c) const {
  c.count(3);
  check_labels(c);
  check_classes(c, classes);
  c.dtype(2, DType::kF32);
  c.same_shape(2, {c.shape(0)[0]});
  return {c.input(0)};
}

Outputs ClassifierHead::infer(const OpCheck& c) const {
  c.count(7);
  for (size_t i : {0, 1, 2, 3, 4, 6}) c.dtype(i, DType::kF32);
  for (size_t i : {0, 1, 3}) c.rank(i, 2);
  const int64_t rows = c.shape(0)[0], terms = c.shape(0)[1], hidden = c.shape(1)[1], classes = c.shape(3)[1];
  c.same_shape(1, {terms, hidden});
  c.same_shape(2, {hidden});
  c.same_shape(3, {hidden, classes});
  c.same_shape(4, {classes});
  c.dtype(5, DType::kI32);
  c.same_shape(5, {rows});
  c.same_shape(6, {rows});
  c.require(classes > 0, "there are no classes");
  return {f32({rows, hidden}),  f32({rows, classes}), f32({rows}),
          f32({rows, classes}), f32({rows, hidden}),  f32({rows, terms})};
}

Outputs BatchNorm::infer(const OpCheck& c) const {
  c.floats(c.size() == 4 ? 4 : 3);
  check_channels(c, 0, {1, 2});
  if (c.size() == 4) c.same_shape(3, c.shape(0));
  return {c.input(0), c.input(1), c.input(1)};
}

Outputs BatchNormGrad::infer(const OpCheck& c) const {
  c.require(relu || !residual, "a residual without relu has no gradient of its own");
  c.require(!again || (relu && !residual), "only the result of relu without a residual is given again");
  const bool adds = residual && c.size() == 7;
  const size_t operands = adds ? 7 : (relu ? 6 : 5);
  compressed ? check_floats_and_codes(c, operands, 1) : c.floats(operands);
  c.same_shape(1, c.shape(0));
  if (adds) c.same_shape(6, c.shape(0));
  check_channels(c, 0, {2, 3, 4});
  if (!relu) return {c.input(0), c.input(2), c.input(2)};
  if (!residual) {
    check_channels(c, 0, {5});
    Outputs outputs = {c.input(0), c.input(2), c.input(2)};
    if (again) outputs.push_back(c.input(0));
    return outputs;
  }
  c.same_shape(5, c.shape(0));
  return {c.input(0), c.input(2), c.input(2), c.input(0)};
}

Outputs BranchGrad::infer(const OpCheck& c) const {
  const size_t operands = c.size() == 3 ? 3 : 2;
  marked ? check_floats_and_codes(c, operands, 1) : c.floats(operands);
  check_channels(c, 0, {});
  if (marked) c.same_shape(1, marks_of(c, c.shape(0)));
  for (size_t i = marked ? 2 : 1; i < c.size(); ++i) c.same_shape(i, c.shape(0));
  return {c.input(0), f32({c.shape(0).last()})};
}

Outputs ConvNormGrad::infer(const OpCheck& c) const {
  c.floats(6);
  check_channels(c, 0, {1, 4, 5});
  const Shape &g = c.shape(0), &x = c.shape(2);
  const int last = g.rank() - 1;
  c.rank(2, g.rank());
  c.require(x.last() > 0 && x.with(last, g.last()) == g, "x and the gradient must have the same pixels");
  c.same_shape(3, filter_by_result ? Shape{g.last(), 1, 1, x.last()} : Shape{1, 1, x.last(), g.last()});
  return {c.input(2), c.input(3), c.input(4)};
}

Outputs ConvNormApply::infer(const OpCheck& c) const {
  c.floats(c.size() == 7 ? 7 : 6);
  const Shape &x = c.shape(0), &filter = c.shape(1);
  c.require(x.rank() >= 2 && x.elements() > 0, "there are no pixels");
  c.rank(1, 4);
  const int64_t channels = filter[filter_by_result ? 0 : 3];
  c.same_shape(1, filter_by_result ? Shape{channels, 1, 1, x.last()} : Shape{1, 1, x.last(), channels});
  c.require(channels > 0, "the filter has no results");
  for (const size_t i : {2, 3, 4, 5}) c.same_shape(i, {channels});
  const Shape y = x.with(x.rank() - 1, channels);
  if (c.size() == 7) c.same_shape(6, y);
  return {f32(y)};
}

Outputs BatchNormStatistics::infer(const OpCheck& c) const {
  c.floats(1);
  check_channels(c, 0, {});
  const TensorSpec of_channel = f32({c.shape(0).last()});
  return {of_channel, of_channel};
}

Outputs BatchNormApply::infer(const OpCheck& c) const {
  const size_t operands = c.size() == 6 && !compressed ? 6 : 5;
  compressed ? check_floats_and_codes(c, operands, 0) : c.floats(operands);
  c.require(!compresses || !compressed, "codes are not compressed again");
  check_channels(c, 0, {1, 2, 3, 4});
  if (c.size() == 6) c.same_shape(5, c.shape(0));
  Outputs outputs = {f32(c.shape(0))};
  if (compresses) outputs.push_back(u8(c.shape(0)));
  if (marks) outputs.push_back(u8(marks_of(c, c.shape(0))));
  return outputs;
}

Outputs LayerNorm::infer(const OpCheck& c) const {
  c.floats(3);
  c.require(c.shape(0).rank() >= 1 && c.shape(0).last() > 0, "there is nothing to normalize over");
  for (size_t i : {1, 2}) c.same_shape(i, {c.shape(0).last()});
  const TensorSpec rows =
      f32(Shape(extents_of(c.shape(0)).first(static_cast<size_t>(c.shape(0).rank() - 1))));
  return {c.input(0), rows, rows};
}

Outputs LayerNormGrad::infer(const OpCheck& c) const {
  c.floats(c.size() == 6 ? 6 : 5);
  c.same_shape(1, c.shape(0));
  if (c.size() == 6) c.same_shape(5, c.shape(0));
  c.require(c.shape(0).rank() >= 1 && c.shape(0).last() > 0, "there is nothing to normalize over");
  c.same_shape(2, {c.shape(0).last()});
  const Shape rows(extents_of(c.shape(0)).first(static_cast<size_t>(c.shape(0).rank() - 1)));
  for (size_t i : {3, 4}) c.same_shape(i, rows);
  return {c.input(0), c.input(2), c.input(2)};
}

Outputs CumulativeSum::infer(const OpCheck& c) const {
  c.count(1);
  c.require(c.input(0).dtype != DType::kU8, "operand 0 must be f32 or i32");
  c.require(axis >= 0 && axis < c.shape(0).rank(),
            fmt::format("axis {} is outside rank {}", axis, c.shape(0).rank()));
  return {c.input(0)};
}

}  // namespace headroom
