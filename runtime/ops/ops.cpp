#include "runtime/ops/ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "runtime/ops/infer_op.h"

namespace headroom {

namespace {

Shape concatenated(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<int64_t> extents(a.begin(), a.end());
  extents.insert(extents.end(), b.begin(), b.end());
  return Shape(std::span<const int64_t>(extents));
}

std::span<const int64_t> extents_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

Shape reduced(const OpCheck& check, const Shape& x, const std::vector<int>& axes, bool keep) {
  check.require(
      std::is_sorted(axes.begin(), axes.end()) && std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
      "axes must be sorted and distinct");
  std::vector<int64_t> extents;
  for (int axis : axes) {
    check.require(axis >= 0 && axis < x.rank(), fmt::format("axis {} is outside rank {}", axis, x.rank()));
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool reduce = std::binary_search(axes.begin(), axes.end(), axis);
    if (!reduce) extents.push_back(x[axis]);
    if (reduce && keep) extents.push_back(1);
  }
  return Shape(std::span<const int64_t>(extents));
}

Outputs infer(const MatMul& op, const OpCheck& c) {
  c.floats(2);
  const Shape &a = c.shape(0), &b = c.shape(1);
  c.require(a.rank() >= 2 && b.rank() >= 2, "operands must be matrices or batches of them");
  const int ra = a.rank(), rb = b.rank();
  const int64_t m = op.transpose_a ? a[ra - 1] : a[ra - 2], ka = op.transpose_a ? a[ra - 2] : a[ra - 1];
  const int64_t kb = op.transpose_b ? b[rb - 1] : b[rb - 2], n = op.transpose_b ? b[rb - 2] : b[rb - 1];
  c.require(ka == kb, fmt::format("inner extents differ: {} and {}", ka, kb));
  Shape batch;
  c.require(broadcast(Shape(extents_of(a).first(static_cast<size_t>(ra - 2))),
                      Shape(extents_of(b).first(static_cast<size_t>(rb - 2))), &batch),
            "batch extents do not broadcast");
  const std::array<int64_t, 2> matrix = {m, n};
  return {f32(concatenated(extents_of(batch), matrix))};
}

Outputs infer(const Dense&, const OpCheck& c) {
  c.floats(3);
  c.rank(0, 2);
  const Shape &x = c.shape(0), &w = c.shape(1);
  c.require(x[1] > 0, "there is nothing to sum");
  c.require(w.rank() == 2 && w[0] == x[1], fmt::format("the weights must be ({},N)", x[1]));
  c.same_shape(2, {w[1]});
  return {f32({x[0], w[1]})};
}

Outputs infer(const DenseFilterGrad&, const OpCheck& c) {
  c.floats(2);
  c.rank(0, 2);
  const Shape &x = c.shape(0), &dy = c.shape(1);
  c.require(x[1] > 0, "there is nothing to sum");
  c.require(dy.rank() == 2 && dy[0] == x[0], fmt::format("the gradient must be ({},N)", x[0]));
  return {f32({x[1], dy[1]}), f32({dy[1]})};
}

Outputs infer(const Unary&, const OpCheck& c) {
  c.floats(1);
  return {c.input(0)};
}

Outputs infer(const UnaryGrad&, const OpCheck& c) {
  c.floats(2);
  c.same_shape(1, c.shape(0));
  return {c.input(0)};
}

Outputs infer(const Scale&, const OpCheck& c) {
  c.floats(1);
  return {c.input(0)};
}

Outputs infer(const Binary&, const OpCheck& c) {
  c.floats(2);
  Shape result;
  c.require(broadcast(c.shape(0), c.shape(1), &result), "shapes do not broadcast");
  return {f32(result)};
}

Outputs infer(const Cast& op, const OpCheck& c) {
  c.count(1);
  return {{op.to, c.shape(0)}};
}

Outputs infer(const Dropout& op, const OpCheck& c) {
  c.count(2);
  c.dtype(0, DType::kF32);
  c.scalar(1, DType::kI32);
  c.require(op.rate >= 0 && op.rate < 1, fmt::format("rate must be in [0, 1), got {}", op.rate));
  return {c.input(0)};
}

Outputs infer(const Reshape& op, const OpCheck& c) {
  c.count(1);
  c.require(op.shape.elements() == c.shape(0).elements(),
            fmt::format("{} has {} elements, not {}", to_string(op.shape), op.shape.elements(),
                        c.shape(0).elements()));
  return {{c.input(0).dtype, op.shape}};
}

Outputs infer(const CopyToDevice&, const OpCheck& c) {
  c.count(1);
  return {c.input(0)};
}

Outputs infer(const Transpose& op, const OpCheck& c) {
  c.count(1);
  const int rank = c.shape(0).rank();
  std::vector<int> sorted = op.axes;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> expected(static_cast<size_t>(rank));
  std::iota(expected.begin(), expected.end(), 0);
  c.require(sorted == expected,
            fmt::format("axes [{}] are no permutation of rank {}", fmt::join(op.axes, ","), rank));
  std::vector<int64_t> extents;
  for (int axis : op.axes) extents.push_back(c.shape(0)[axis]);
  return {{c.input(0).dtype, Shape(std::span<const int64_t>(extents))}};
}

Outputs infer(const Concat& op, const OpCheck& c) {
  c.require(c.size() >= 1, "takes at least one operand");
  const Shape& first = c.shape(0);
  c.require(op.axis >= 0 && op.axis < first.rank(),
            fmt::format("axis {} is outside rank {}", op.axis, first.rank()));
  int64_t extent = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    c.dtype(i, c.input(0).dtype);
    c.require(c.shape(i).rank() == first.rank() && c.shape(i).with(op.axis, 0) == first.with(op.axis, 0),
              fmt::format("operands may differ along axis {} only", op.axis));
    extent += c.shape(i)[op.axis];
  }
  return {{c.input(0).dtype, first.with(op.axis, extent)}};
}

void check_slice(const OpCheck& c, const Shape& whole, const std::vector<int64_t>& begin,
                 const Shape& extents) {
  c.require(static_cast<int>(begin.size()) == whole.rank() && extents.rank() == whole.rank(),
            fmt::format("begin and extents must have rank {}", whole.rank()));
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const int64_t first = begin[static_cast<size_t>(axis)];
    c.require(first >= 0 && extents[axis] <= whole[axis] && first <= whole[axis] - extents[axis],
              fmt::format("{} from {} on is outside axis {} of extent {}", extents[axis], first, axis,
                          whole[axis]));
  }
}

Outputs infer(const Slice& op, const OpCheck& c) {
  c.count(1);
  check_slice(c, c.shape(0), op.begin, op.extents);
  return {{c.input(0).dtype, op.extents}};
}

Outputs infer(const SliceGrad& op, const OpCheck& c) {
  c.count(1);
  check_slice(c, op.input_shape, op.begin, c.shape(0));
  return {{c.input(0).dtype, op.input_shape}};
}

Outputs infer(const Gather&, const OpCheck& c) {
  c.count(2);
  c.dtype(1, DType::kI32);
  c.require(c.shape(0).rank() >= 1, "the table must have rank 1 at least");
  c.require(c.shape(0).rank() - 1 + c.shape(1).rank() <= Shape::kMaxRank, "the result's rank is too high");
  return {{c.input(0).dtype, concatenated(extents_of(c.shape(1)), extents_of(c.shape(0)).subspan(1))}};
}

Outputs infer(const GatherGrad& op, const OpCheck& c) {
  c.count(2);
  c.dtype(0, DType::kF32);
  c.dtype(1, DType::kI32);
  c.require(op.table_shape.rank() >= 1, "the table must have rank 1 at least");
  c.same_shape(0, concatenated(extents_of(c.shape(1)), extents_of(op.table_shape).subspan(1)));
  return {f32(op.table_shape)};
}

Outputs infer(const TakeBatch& op, const OpCheck& c) {
  const bool ordered = c.size() == 3;
  if (!ordered) c.count(2);
  c.require(c.shape(0).rank() >= 1, "the table must have rank 1 at least");
  c.scalar(1, DType::kI32);
  if (ordered) {
    c.dtype(2, DType::kI32);
    c.rank(2, 1);
  }
  const int64_t rows = c.shape(ordered ? 2 : 0)[0];
  c.require(op.batch >= 1 && op.batch <= rows,
            fmt::format("the batch must be from 1 to the {} rows, got {}", rows, op.batch));
  if (op.scale) c.dtype(0, DType::kU8);
  return {{op.scale ? DType::kF32 : c.input(0).dtype, c.shape(0).with(0, op.batch)}};
}

Outputs infer(const BroadcastTo& op, const OpCheck& c) {
  c.floats(1);
  Shape result;
  c.require(broadcast(c.shape(0), op.shape, &result) && result == op.shape,
            fmt::format("does not broadcast to {}", to_string(op.shape)));
  return {f32(op.shape)};
}

Outputs infer(const Fill& op, const OpCheck& c) {
  c.count(0);
  return {f32(op.shape)};
}

Outputs infer(const Reduce& op, const OpCheck& c) {
  c.floats(1);
  if (op.kind != ReduceKind::kSum) {
    for (int axis : op.axes) {
      if (axis >= 0 && axis < c.shape(0).rank())
        c.require(c.shape(0)[axis] > 0, "nothing to reduce along an axis");
    }
  }
  return {f32(reduced(c, c.shape(0), op.axes, op.keep_axes))};
}

Outputs infer(const ReduceMaxGrad& op, const OpCheck& c) {
  c.floats(3);
  const Shape kept = reduced(c, c.shape(0), op.axes, true);
  c.same_shape(1, kept);
  c.same_shape(2, kept);
  return {c.input(0)};
}

Outputs infer(const ArgMax& op, const OpCheck& c) {
  c.floats(1);
  const Shape result = reduced(c, c.shape(0), {op.axis}, false);
  c.require(c.shape(0)[op.axis] > 0, "nothing to compare along the axis");
  return {i32(result)};
}

void check_labels(const OpCheck& c) {
  c.dtype(0, DType::kF32);
  c.rank(0, 2);
  c.dtype(1, DType::kI32);
  c.same_shape(1, {c.shape(0)[0]});
  c.require(c.shape(0)[1] > 0, "there are no classes");
}

Outputs infer(const Accuracy&, const OpCheck& c) {
  c.count(2);
  check_labels(c);
  c.require(c.shape(0)[0] > 0, "there are no rows");
  return {f32({})};
}

Outputs infer(const Softmax&, const OpCheck& c) {
  c.floats(1);
  c.require(c.shape(0).rank() >= 1, "takes rank 1 at least");
  return {c.input(0)};
}

Outputs infer(const SoftmaxGrad&, const OpCheck& c) {
  c.floats(2);
  c.same_shape(1, c.shape(0));
  return {c.input(0)};
}

Outputs infer(const CrossEntropy&, const OpCheck& c) {
  c.count(2);
  check_labels(c);
  return {f32({c.shape(0)[0]})};
}

Outputs infer(const CrossEntropyGrad&, const OpCheck& c) {
  c.count(3);
  check_labels(c);
  c.dtype(2, DType::kF32);
  c.same_shape(2, {c.shape(0)[0]});
  return {c.input(0)};
}

Outputs infer(const ClassifierHead&, const OpCheck& c) {
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

void check_channels(const OpCheck& c, size_t image, std::initializer_list<size_t> vectors) {
  c.require(c.shape(image).rank() >= 2, "the image must have rank 2 at least");
  c.require(c.shape(image).elements() > 0, "the image is empty");
  for (size_t i : vectors) c.same_shape(i, {c.shape(image).last()});
}

Outputs infer(const BatchNorm&, const OpCheck& c) {
  c.floats(3);
  check_channels(c, 0, {1, 2});
  return {c.input(0), c.input(1), c.input(1)};
}

Outputs infer(const BatchNormGrad&, const OpCheck& c) {
  c.floats(5);
  c.same_shape(1, c.shape(0));
  check_channels(c, 0, {2, 3, 4});
  return {c.input(0), c.input(2), c.input(2)};
}

Outputs infer(const BatchNormInference&, const OpCheck& c) {
  c.floats(5);
  check_channels(c, 0, {1, 2, 3, 4});
  return {c.input(0)};
}

// `operands` f32 tensors of one shape for each variable, after the first `shared` ones: lr [] and perhaps
// more.
Outputs infer(const AllReduce& op, const OpCheck& c) {
  const size_t first = op.follows ? 1 : 0;
  c.require(op.replicas >= 1, fmt::format("there must be a replica, got {}", op.replicas));
  c.require(c.size() > first, "takes at least one operand to sum");
  c.floats(c.size());
  Outputs outputs;
  for (size_t i = first; i < c.size(); ++i) outputs.push_back(c.input(i));
  return outputs;
}

Outputs infer(const AllGatherUpdate& op, const OpCheck& c) {
  c.require(op.replicas >= 1, fmt::format("there must be a replica, got {}", op.replicas));
  c.require(c.size() >= 1, "takes at least one operand");
  c.floats(c.size());
  return {};
}

// A variable and its gradient have the same shape, its states that of the shard.
void check_update(const OpCheck& c, size_t shared, size_t operands, const Shard& shard) {
  c.require(shard.of >= 1 && shard.index >= 0 && shard.index < shard.of,
            fmt::format("there is no shard {} of {}", shard.index, shard.of));
  c.require(c.size() > shared && (c.size() - shared) % operands == 0,
            fmt::format("takes {} operand{} and {} for each variable, got {}", shared, shared == 1 ? "" : "s",
                        operands, c.size()));
  c.scalar(0, DType::kF32);
  for (size_t i = shared; i < c.size(); ++i) {
    c.dtype(i, DType::kF32);
    const size_t place = (i - shared) % operands;
    const Shape& variable = c.shape(i - place);
    c.same_shape(i, place < 2 || shard.is_whole() ? variable : Shape{shard.size(variable.elements())});
  }
}

Outputs infer(const SgdUpdate& op, const OpCheck& c) {
  check_update(c, 1, op.momentum != 0 ? 3 : 2, op.shard);
  return {};
}

Outputs infer(const RmspropUpdate& op, const OpCheck& c) {
  check_update(c, 1, 3, op.shard);
  return {};
}

Outputs infer(const AdamUpdate& op, const OpCheck& c) {
  check_update(c, 2, 4, op.shard);
  c.scalar(1, DType::kI32);
  return {};
}

Outputs infer(const MovingAverageUpdate&, const OpCheck& c) {
  c.floats(2);
  c.same_shape(1, c.shape(0));
  return {};
}

Outputs infer(const CounterUpdate&, const OpCheck& c) {
  c.count(1);
  c.scalar(0, DType::kI32);
  return {};
}

Outputs infer(const RowUpdate&, const OpCheck& c) {
  c.require(c.size() >= 3 && c.size() % 2 == 1,
            fmt::format("takes a step and pairs of table and row, got {} operands", c.size()));
  c.scalar(0, DType::kI32);
  for (size_t i = 1; i < c.size(); i += 2) {
    c.require(c.shape(i).rank() >= 1 && c.shape(i)[0] >= 1, fmt::format("operand {} has no rows", i));
    c.dtype(i + 1, c.input(i).dtype);
    c.same_shape(i + 1, Shape(extents_of(c.shape(i)).subspan(1)));
  }
  return {};
}

}  // namespace

std::vector<TensorSpec> infer_outputs(const Op& op, std::span<const TensorSpec> inputs) {
  const OpCheck check(op, inputs);
  return std::visit([&](const auto& concrete) { return infer(concrete, check); }, op);
}

}  // namespace headroom
