// ONNX ops that reduce, and normalizations.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

struct Reduction {
  std::vector<int> axes;
  bool keeps = true;
  bool is_none = false;  // nothing is reduced
};

Reduction reduction_of(const NodeImport& n) {
  const int rank = n.in(0).rank();
  Reduction reduction;
  reduction.keeps = n.integer("keepdims", 1) != 0;
  const auto given = n.integers_of("axes", 1);
  if (given && !given->empty()) {
    reduction.axes = n.axes(*given, rank);
  } else if (n.integer("noop_with_empty_axes", 0) != 0) {
    reduction.is_none = true;
  } else {
    reduction.axes = in_order(rank);
  }
  return reduction;
}

Item reduced(const NodeImport& n, ReduceKind kind, const Item& x, const Reduction& how) {
  return how.is_none ? x : n.im.reduce(kind, x, how.axes, how.keeps);
}

Item squared(const NodeImport& n, const Item& x) {
  return n.im.binary(BinaryKind::kMul, x, x);
}

Item negated(const NodeImport& n, const Item& x) {
  return n.im.binary(BinaryKind::kMul, x, n.im.cast(n.im.number(-1), x.type));
}

// The item's value with `axis` last, and back.
Item over_last_axis(NodeImport& n, const Item& x, int axis, const Op& op) {
  Axes order;
  for (int other : n.im.order_of(x)) {
    if (other != axis) order.push_back(other);
  }
  order.push_back(axis);
  return n.im.item_of(n.im.add_one(op, {n.im.value_in(x, order)}), x.type, order);
}

// x with the axes from `axis` on joined to one.
Item joined_from(const NodeImport& n, const Item& x, int axis) {
  int64_t before = 1, after = 1;
  for (int i = 0; i < axis; ++i) before *= x.shape[i];
  for (int i = axis; i < x.rank(); ++i) after *= x.shape[i];
  return n.im.reshape(x, {before, after});
}

Item softmax(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.dtype() != DType::kF32) n.fail("takes integers");
  const int axis = n.axis(n.integer("axis", n.opset < 13 ? 1 : -1), x.rank());
  if (n.opset < 13 && axis + 1 < x.rank()) {  // over all axes from that one on
    return n.im.reshape(over_last_axis(n, joined_from(n, x, axis), 1, Softmax{}), x.shape);
  }
  return over_last_axis(n, x, axis, Softmax{});
}

// Returns a vector as a variable, both for constants and weights.
Value vector_of(const NodeImport& n, size_t i, int64_t extent) {
  const Item& item = n.in(i);
  if (item.shape.elements() != extent)
    n.fail(fmt::format("operand {} is {}, not [{}]", i, to_string(item.shape), extent));
  return n.im.plain(n.im.reshape(item, {extent}));
}

Value filled(const NodeImport& n, float value, int64_t extent) {
  Item item = n.im.number(value);
  item.shape = {extent};
  return n.im.plain(item);
}

}  // namespace

void add_reduction(NodeImport& n, ReduceKind kind) {
  n.out(reduced(n, kind, n.in(0), reduction_of(n)));
}

void import_reduce_min(NodeImport& n) {
  const Item& x = n.in(0);
  const Reduction how = reduction_of(n);
  if (how.is_none) return n.out(x);
  // In floats: booleans and uint8 have no negative numbers.
  const Item largest = reduced(n, ReduceKind::kMax, negated(n, n.im.cast(x, ElementType::kFloat)), how);
  n.out(n.im.cast(negated(n, largest), x.type));
}

void import_reduce_l1(NodeImport& n) {
  const Item x = n.im.cast(n.in(0), ElementType::kFloat);
  const Item sum = reduced(n, ReduceKind::kSum, n.im.unary(UnaryKind::kAbs, x), reduction_of(n));
  n.out(n.im.cast(sum, n.in(0).type));
}

void import_reduce_l2(NodeImport& n) {
  const Item x = n.im.cast(n.in(0), ElementType::kFloat);
  const Item sum = reduced(n, ReduceKind::kSum, squared(n, x), reduction_of(n));
  n.out(n.im.cast(n.im.unary(UnaryKind::kSqrt, sum), n.in(0).type));
}

void import_reduce_sum_square(NodeImport& n) {
  n.out(reduced(n, ReduceKind::kSum, squared(n, n.in(0)), reduction_of(n)));
}

void import_reduce_log_sum(NodeImport& n) {
  n.out(n.im.unary(UnaryKind::kLog, reduced(n, ReduceKind::kSum, n.in(0), reduction_of(n))));
}

void import_reduce_log_sum_exp(NodeImport& n) {
  const Item& x = n.in(0);
  Reduction how = reduction_of(n);
  if (how.is_none) return n.out(x);
  const Item largest = n.im.reduce(ReduceKind::kMax, x, how.axes, true);
  const Item powers = n.im.unary(UnaryKind::kExp, n.im.binary(BinaryKind::kSub, x, largest));
  const Item sum = n.im.reduce(ReduceKind::kSum, powers, how.axes, true);
  Item result = n.im.binary(BinaryKind::kAdd, n.im.unary(UnaryKind::kLog, sum), largest);
  if (!how.keeps) {
    std::vector<int64_t> extents;
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (!std::ranges::binary_search(how.axes, axis)) extents.push_back(x.shape[axis]);
    }
    result = n.im.reshape(result, Shape(std::span<const int64_t>(extents)));
  }
  n.out(result);
}

// Imports products of shapes, factor by factor.
void import_reduce_prod(NodeImport& n) {
  Item x = n.in(0);
  const Reduction how = reduction_of(n);
  if (how.is_none) return n.out(x);
  const Shape whole = x.shape;
  for (int axis : how.axes) {
    constexpr int64_t kMaxFactors = 1024;  // nodes
    if (x.shape[axis] > kMaxFactors) n.fail(fmt::format("multiplies {} numbers", x.shape[axis]));
    std::optional<Item> product;
    for (int64_t i = 0; i < x.shape[axis]; ++i) {
      Slice one{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape.with(axis, 1)};
      one.begin[static_cast<size_t>(axis)] = i;
      const Item factor = n.im.slice(x, one);
      product = product ? n.im.binary(BinaryKind::kMul, *product, factor) : factor;
    }
    const Item none = n.im.expand(n.im.cast(n.im.number(1), x.type), x.shape.with(axis, 1));
    x = product ? *product : none;
  }
  if (!how.keeps) {
    std::vector<int64_t> extents;
    for (int axis = 0; axis < whole.rank(); ++axis) {
      if (!std::ranges::binary_search(how.axes, axis)) extents.push_back(whole[axis]);
    }
    x = n.im.reshape(x, Shape(std::span<const int64_t>(extents)));
  }
  n.out(x);
}

void import_softmax(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.constant && n.opset >= 13 && n.axis(n.integer("axis", -1), x.rank()) == x.rank() - 1) {
    return n.out(n.im.apply(Softmax{}, {x}, x.type));
  }
  n.out(softmax(n));
}

void import_log_softmax(NodeImport& n) {  // x - max - log(sum(exp(x - max)))
  const Item& given = n.in(0);
  const int axis = n.axis(n.integer("axis", n.opset < 13 ? 1 : -1), given.rank());
  const bool is_joined = n.opset < 13 && axis + 1 < given.rank();
  const Item x = is_joined ? joined_from(n, given, axis) : given;
  const std::vector<int> over = {is_joined ? 1 : axis};
  const Item centered = n.im.binary(BinaryKind::kSub, x, n.im.reduce(ReduceKind::kMax, x, over, true));
  const Item sum = n.im.reduce(ReduceKind::kSum, n.im.unary(UnaryKind::kExp, centered), over, true);
  const Item y = n.im.binary(BinaryKind::kSub, centered, n.im.unary(UnaryKind::kLog, sum));
  n.out(n.im.reshape(y, given.shape));
}

void import_batch_normalization(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.rank() < 2 || x.dtype() != DType::kF32) n.fail("takes (N,C,..) of floats");
  if (n.integer("spatial", 1) == 0) n.fail("has statistics of each pixel");
  const float epsilon = n.number("epsilon", 1e-5f), momentum = n.number("momentum", 0.9f);
  const int64_t channels = x.shape[1];
  Axes order = {0};
  for (int axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  const Value value = n.im.value_in(x, order);
  const Value gamma = vector_of(n, 1, channels), beta = vector_of(n, 2, channels);
  const Value mean = vector_of(n, 3, channels), variance = vector_of(n, 4, channels);
  Value y;
  if (n.im.is_training()) {
    const std::vector<Value> results = n.im.add(BatchNorm{epsilon}, {value, gamma, beta});
    y = results[0];
    // Averages the running statistics, if they are state: ONNX's momentum is the share that stays.
    const auto is_variable = [&](const Value& v) {
      return n.im.graph().value(v.id).kind == ValueKind::kVariable;
    };
    if (is_variable(mean)) n.im.add(MovingAverageUpdate{momentum}, {mean, results[1]});
    if (is_variable(variance)) n.im.add(MovingAverageUpdate{momentum}, {variance, results[2]});
  } else {
    y = n.im.add_one(BatchNormApply{epsilon}, {value, gamma, beta, mean, variance});
  }
  n.out(n.im.item_of(y, x.type, order));
}

void import_layer_normalization(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.dtype() != DType::kF32) n.fail("takes integers");
  const int axis = n.axis(n.integer("axis", -1), x.rank());
  int64_t extent = 1;
  for (int i = axis; i < x.rank(); ++i) extent *= x.shape[i];
  Item rows = x;
  if (axis + 1 < x.rank()) {
    std::vector<int64_t> extents(x.shape.begin(), x.shape.begin() + axis);
    extents.push_back(extent);
    rows = n.im.reshape(x, Shape(std::span<const int64_t>(extents)));
  }
  const Value gamma = vector_of(n, 1, extent);
  const Value beta = n.has(2) ? vector_of(n, 2, extent) : filled(n, 0, extent);
  const LayerNorm op{n.number("epsilon", 1e-5f)};
  // Rows may be in any order, as long as the normalized axis is last.
  Axes order = n.im.order_of(rows);
  if (order.back() != rows.rank() - 1) order = in_order(rows.rank());
  const std::vector<Value> results = n.im.add(op, {n.im.value_in(rows, order), gamma, beta});
  n.out(n.im.reshape(n.im.item_of(results[0], x.type, order), x.shape));
  std::vector<int64_t> kept(x.shape.begin(), x.shape.begin() + axis);
  kept.resize(static_cast<size_t>(x.rank()), 1);
  const Axes left(order.begin(), order.end() - 1);
  for (size_t i : {1, 2}) {
    if (n.node.outputs.size() <= i || n.node.outputs[i].empty()) break;
    n.out(n.im.reshape(n.im.item_of(results[i], x.type, left), Shape(std::span<const int64_t>(kept))));
  }
}

namespace {

// (x - mean) / sqrt(variance + epsilon) over the last axis of x (..,K), without scale and shift.
Item normalized(NodeImport& n, const Item& x, float epsilon) {
  const int64_t extent = x.shape.last();
  const Value y =
      n.im.add_one(LayerNorm{epsilon}, {n.im.plain(x), filled(n, 1, extent), filled(n, 0, extent)});
  return n.im.item_of(y, x.type, in_order(x.rank()));
}

// A vector over the channels of x (N,C,..).
Item per_channel(const NodeImport& n, const Item& vector, int rank) {
  std::vector<int64_t> extents(static_cast<size_t>(rank - 1), 1);
  extents[0] = vector.shape.elements();
  return n.im.reshape(vector, Shape(std::span<const int64_t>(extents)));
}

void add_group_norm(NodeImport& n, int64_t groups, float epsilon, const Item& scale, const Item& shift) {
  const Item& x = n.in(0);
  if (x.rank() < 3 || groups < 1 || x.shape[1] % groups != 0)
    n.fail("its channels do not divide into groups");
  const int64_t extent = x.shape.elements() / std::max<int64_t>(1, x.shape[0] * groups);
  const Item y = n.im.reshape(normalized(n, n.im.reshape(x, {x.shape[0], groups, extent}), epsilon), x.shape);
  const Item scaled = n.im.binary(BinaryKind::kMul, y, per_channel(n, scale, x.rank()));
  n.out(n.im.binary(BinaryKind::kAdd, scaled, per_channel(n, shift, x.rank())));
}

}  // namespace

void import_instance_normalization(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.rank() < 3) n.fail("takes (N,C,..)");
  add_group_norm(n, x.shape[1], n.number("epsilon", 1e-5f), n.in(1), n.in(2));
}

void import_group_normalization(NodeImport& n) {
  const Item& x = n.in(0);
  const int64_t groups = n.integer("num_groups", 0);
  if (x.rank() < 3 || groups < 1) n.fail("takes (N,C,..) and groups");
  Item scale = n.in(1), shift = n.in(2);
  if (n.opset < 21) {  // one for each group
    const int64_t each = x.shape[1] / groups;
    const auto repeated = [&](const Item& item) {
      return n.im.reshape(n.im.expand(n.im.reshape(item, {groups, 1}), {groups, each}), {groups * each});
    };
    scale = repeated(scale);
    shift = repeated(shift);
  }
  add_group_norm(n, groups, n.number("epsilon", 1e-5f), scale, shift);
}

void import_rms_normalization(NodeImport& n) {  // x / sqrt(mean of x^2 + epsilon) scale
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer("axis", -1), x.rank());
  std::vector<int> axes(static_cast<size_t>(x.rank() - axis));
  std::iota(axes.begin(), axes.end(), axis);
  const Item mean = n.im.reduce(ReduceKind::kMean, squared(n, x), axes, true);
  const Item root = n.im.unary(UnaryKind::kSqrt,
                               n.im.binary(BinaryKind::kAdd, mean, n.im.number(n.number("epsilon", 1e-5f))));
  n.out(n.im.binary(BinaryKind::kMul, n.im.binary(BinaryKind::kDiv, x, root), n.in(1)));
}

// x / (bias + alpha / size sum of x^2 over `size` neighboring channels)^beta
void import_lrn(NodeImport& n) {
  const Item& x = n.in(0);
  const int64_t size = n.integer("size", 1);
  if (x.rank() < 2 || size < 1) n.fail("takes (N,C,..) and a size");
  const int64_t channels = x.shape[1], before = (size - 1) / 2, after = size - 1 - before;
  if (channels * channels > Importer::kMaxFolded) n.fail("is too large");
  // The sums of a pixel's channels are its squares times a matrix with a band of ones.
  const HostTensor band({DType::kF32, {channels, channels}});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = std::max<int64_t>(0, c - before); k <= std::min(channels - 1, c + after); ++k) {
      band.data<float>()[static_cast<size_t>(k * channels + c)] = 1;
    }
  }
  Axes last = {0};
  for (int axis = 2; axis < x.rank(); ++axis) last.push_back(axis);
  last.push_back(1);
  const Item sums =
      n.im.matmul(n.im.transpose(squared(n, x), last), n.im.constant(band, ElementType::kFloat));
  const Item share = n.im.number(n.number("alpha", 0.0001f) / static_cast<float>(size));
  const Item base = n.im.binary(BinaryKind::kAdd, n.im.binary(BinaryKind::kMul, sums, share),
                                n.im.number(n.number("bias", 1)));
  const Item divisor = n.im.unary(UnaryKind::kPower, base, n.number("beta", 0.75f));
  n.out(n.im.binary(BinaryKind::kDiv, x, n.im.transpose(divisor, inverse(last))));
}

}  // namespace headroom::onnx
