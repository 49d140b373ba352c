// ONNX ops of one element from one of each operand, and random numbers: others at each step, the same at each
// run.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Old versions broadcast b to the axes of a from `axis` on.
Item right_operand(const NodeImport& n) {
  const Item &a = n.in(0), &b = n.in(1);
  if (n.opset >= 7 || n.integer("broadcast", 0) == 0 || !n.has_attribute("axis")) return b;
  const int axis = n.axis(n.integer("axis", 0), a.rank());
  std::vector<int64_t> extents(b.shape.begin(), b.shape.end());
  extents.resize(static_cast<size_t>(std::max(b.rank(), a.rank() - axis)), 1);
  return n.im.reshape(b, Shape(std::span<const int64_t>(extents)));
}

// Combines any number of operands.
Item combine_all(const NodeImport& n, BinaryKind kind) {
  Item result = n.in(0);
  for (size_t i = 1; i < n.operands(); ++i) result = n.im.binary(kind, result, n.in(i));
  return result;
}

}  // namespace

void add_unary(NodeImport& n, UnaryKind kind, float alpha, float beta) {
  const Item& x = n.in(0);
  if (is_float(x.type)) {
    n.out(n.im.unary(kind, x, alpha, beta));
  } else {  // for whole numbers: abs, sign, ...
    n.out(n.im.cast(n.im.unary(kind, n.im.cast(x, ElementType::kFloat), alpha, beta), x.type));
  }
}

void add_binary(NodeImport& n, BinaryKind kind) {
  n.out(n.im.binary(kind, n.in(0), right_operand(n)));
}

void add_compare(NodeImport& n, CompareKind kind, bool swaps) {
  const Item a = n.in(0), b = right_operand(n);
  n.out(n.im.compare(kind, swaps ? b : a, swaps ? a : b));
}

void import_max(NodeImport& n) {
  n.out(combine_all(n, BinaryKind::kMax));
}
void import_min(NodeImport& n) {
  n.out(combine_all(n, BinaryKind::kMin));
}
void import_sum(NodeImport& n) {
  n.out(combine_all(n, BinaryKind::kAdd));
}

void import_mean(NodeImport& n) {
  const Item count = n.im.number(static_cast<float>(n.operands()));
  n.out(n.im.binary(BinaryKind::kDiv, combine_all(n, BinaryKind::kAdd), count));
}

void import_pow(NodeImport& n) {
  const Item &x = n.in(0), exponent = right_operand(n);
  const Item base = n.im.cast(x, ElementType::kFloat);
  n.out(n.im.cast(n.im.binary(BinaryKind::kPow, base, n.im.cast(exponent, ElementType::kFloat)), x.type));
}

void import_mod(NodeImport& n) {
  const Item &a = n.in(0), &b = n.in(1);
  if (n.integer("fmod", 0) == 0) return n.out(n.im.binary(BinaryKind::kMod, a, b));
  // The sign is the dividend's: |a| mod |b| with it.
  const Item x = n.im.cast(a, ElementType::kFloat), y = n.im.cast(b, ElementType::kFloat);
  const Item rest =
      n.im.binary(BinaryKind::kMod, n.im.unary(UnaryKind::kAbs, x), n.im.unary(UnaryKind::kAbs, y));
  n.out(n.im.cast(n.im.binary(BinaryKind::kMul, n.im.unary(UnaryKind::kSign, x), rest), a.type));
}

void import_leaky_relu(NodeImport& n) {
  add_unary(n, UnaryKind::kLeakyRelu, n.number("alpha", 0.01f));
}
void import_elu(NodeImport& n) {
  add_unary(n, UnaryKind::kElu, n.number("alpha", 1));
}
void import_hard_sigmoid(NodeImport& n) {
  add_unary(n, UnaryKind::kHardSigmoid, n.number("alpha", 0.2f), n.number("beta", 0.5f));
}

void import_neg(NodeImport& n) {
  const Item& x = n.in(0);
  n.out(n.im.binary(BinaryKind::kMul, x, n.im.cast(n.im.number(-1), x.type)));
}

void import_softsign(NodeImport& n) {  // x / (1 + |x|)
  const Item& x = n.in(0);
  n.out(n.im.binary(BinaryKind::kDiv, x,
                    n.im.binary(BinaryKind::kAdd, n.im.unary(UnaryKind::kAbs, x), n.im.number(1))));
}

void import_clip(NodeImport& n) {
  const Item& x = n.in(0);
  float low = n.number("min", -kInfinity), high = n.number("max", kInfinity);
  const bool is_known = (!n.has(1) || n.in(1).constant) && (!n.has(2) || n.in(2).constant);
  if (is_known && n.has(1)) low = n.number_in(1);
  if (is_known && n.has(2)) high = n.number_in(2);
  if (!is_float(x.type) || !is_known) {
    Item y = x;
    if (n.has(1)) y = n.im.binary(BinaryKind::kMax, y, n.in(1));
    if (n.has(2)) y = n.im.binary(BinaryKind::kMin, y, n.in(2));
    return n.out(y);
  }
  n.out(low > high ? n.im.expand(n.im.number(high), x.shape) : n.im.unary(UnaryKind::kClip, x, low, high));
}

void import_prelu(NodeImport& n) {  // x where x > 0, else slope x
  const Item &x = n.in(0), zero = n.im.number(0);
  const Item slope = n.im.binary(BinaryKind::kMul, x, n.in(1));
  n.out(n.im.where(n.im.compare(CompareKind::kLess, x, zero), slope, x));
}

void import_selu(NodeImport& n) {
  const float alpha = n.number("alpha", 1.67326319217681884765625f);
  const float gamma = n.number("gamma", 1.05070102214813232421875f);
  n.out(n.im.binary(BinaryKind::kMul, n.im.unary(UnaryKind::kElu, n.in(0), alpha), n.im.number(gamma)));
}

void import_celu(NodeImport& n) {  // alpha (exp(x / alpha) - 1) where x < 0
  const float alpha = n.number("alpha", 1);
  const Item scaled = n.im.binary(BinaryKind::kDiv, n.in(0), n.im.number(alpha));
  n.out(n.im.binary(BinaryKind::kMul, n.im.unary(UnaryKind::kElu, scaled, 1), n.im.number(alpha)));
}

void import_mish(NodeImport& n) {
  const Item& x = n.in(0);
  n.out(n.im.binary(BinaryKind::kMul, x, n.im.unary(UnaryKind::kTanh, n.im.unary(UnaryKind::kSoftplus, x))));
}

void import_thresholded_relu(NodeImport& n) {
  const Item &x = n.in(0), limit = n.im.number(n.number("alpha", 1));
  n.out(n.im.where(n.im.compare(CompareKind::kLess, limit, x), x, n.im.number(0)));
}

void import_hard_swish(NodeImport& n) {
  const Item& x = n.in(0);
  n.out(n.im.binary(BinaryKind::kMul, x, n.im.unary(UnaryKind::kHardSigmoid, x, 1.0f / 6, 0.5f)));
}

void import_gelu(NodeImport& n) {
  const bool is_tanh = n.text("approximate", "none") == "tanh";
  n.out(n.im.unary(is_tanh ? UnaryKind::kTanhGelu : UnaryKind::kGelu, n.in(0)));
}

void import_not(NodeImport& n) {
  n.out(n.im.compare(CompareKind::kEqual, n.in(0), n.im.cast(n.im.number(0), ElementType::kBool)));
}

void import_is_nan(NodeImport& n) {
  n.out(n.im.compare(CompareKind::kNotEqual, n.in(0), n.in(0)));
}

void import_is_inf(NodeImport& n) {
  const bool positive = n.integer("detect_positive", 1) != 0, negative = n.integer("detect_negative", 1) != 0;
  Item x = n.in(0);
  if (positive && negative) x = n.im.unary(UnaryKind::kAbs, x);
  const float sought = positive ? kInfinity : negative ? -kInfinity : 0;
  Item result = n.im.compare(CompareKind::kEqual, x, n.im.number(sought));
  if (!positive && !negative) result = n.im.expand(n.im.cast(n.im.number(0), ElementType::kBool), x.shape);
  n.out(result);
}

void import_where(NodeImport& n) {
  n.out(n.im.where(n.in(0), n.in(1), n.in(2)));
}

namespace {

// The values of an integer type of fewer than 32 bits: others wrap around.
Item wrapped(const NodeImport& n, const Item& x, ElementType type) {
  const bool is_signed =
      type == ElementType::kInt4 || type == ElementType::kInt8 || type == ElementType::kInt16;
  const int64_t range = int64_t{1} << stored_bits(type);
  const auto whole = [&](int64_t number) { return n.im.cast(n.im.integers({number}), ElementType::kInt32); };
  const Item offset = n.im.reshape(whole(is_signed ? range / 2 : 0), {});
  const Item moved = n.im.binary(BinaryKind::kAdd, n.im.cast(x, ElementType::kInt32), offset);
  const Item rest = n.im.binary(BinaryKind::kMod, moved, n.im.reshape(whole(range), {}));
  return n.im.cast(n.im.binary(BinaryKind::kSub, rest, offset), type);
}

// True if all values of `from` are also of `to`.
bool holds_all(ElementType from, ElementType to) {
  const auto is_unsigned = [](ElementType type) {
    return type == ElementType::kBool || type == ElementType::kUint4 || type == ElementType::kUint8 ||
           type == ElementType::kUint16;
  };
  if (is_float(from)) return from == to;
  const int64_t small = stored_bits(from), large = stored_bits(to);
  return is_unsigned(from) ? small < large || (small == large && is_unsigned(to))
                           : small <= large && !is_unsigned(to);
}

Item cast_element(const NodeImport& n, ElementType type) {
  const Item& x = n.in(0);
  if (type == x.type || x.list) return n.im.cast(x, type);
  if (is_half(type) && !n.im.stores_half()) return n.im.rounded(x, type);
  const bool is_small =
      !is_float(type) && type != ElementType::kBool && stored_bits(type) > 0 && stored_bits(type) < 32;
  return is_small && !holds_all(x.type, type) ? wrapped(n, x, type) : n.im.cast(x, type);
}

}  // namespace

void import_cast(NodeImport& n) {
  n.out(cast_element(n, static_cast<ElementType>(n.integer("to", 1))));
}
void import_cast_like(NodeImport& n) {
  n.out(cast_element(n, n.in(1).type));
}

void import_identity(NodeImport& n) {
  n.out(n.in(0));
}

namespace {

// Each op has its own stream of numbers, by its place in the graph.
uint64_t next_seed(const NodeImport& n) {
  return n.im.seed() * 1000003 + n.im.graph().nodes().size();
}

// A forward pass alone has no counter of steps: it draws those of step 0.
Value step_of(NodeImport& n) {
  return n.im.step() ? *n.im.step() : n.im.plain(n.im.whole(0));
}

// [0, 1)
Item drawn(NodeImport& n, const Shape& shape) {
  const Value y = n.im.add_one(RandomUniform{shape, next_seed(n)}, {step_of(n)});
  return n.im.item_of(y, ElementType::kFloat, in_order(shape.rank()));
}

Item times(const NodeImport& n, const Item& x, float factor) {
  return n.im.binary(BinaryKind::kMul, x, n.im.number(factor));
}

Item plus(const NodeImport& n, const Item& x, float number) {
  return n.im.binary(BinaryKind::kAdd, x, n.im.number(number));
}

Shape shape_attribute(const NodeImport& n) {
  std::vector<int64_t> extents = n.integers("shape");
  if (extents.size() > static_cast<size_t>(Shape::kMaxRank)) n.fail("makes a tensor of too high a rank");
  for (const int64_t extent : extents) {
    if (extent < 0) n.fail(fmt::format("an extent of {}", extent));
  }
  return Shape(std::span<const int64_t>(extents));
}

void add_uniform(NodeImport& n, const Shape& shape, ElementType otherwise) {
  const float low = n.number("low", 0), high = n.number("high", 1);
  const auto type = static_cast<ElementType>(n.integer("dtype", static_cast<int64_t>(otherwise)));
  n.out(n.im.cast(plus(n, times(n, drawn(n, shape), high - low), low), type));
}

// By Box and Muller, from two uniform numbers.
void add_normal(NodeImport& n, const Shape& shape, ElementType otherwise) {
  const auto type = static_cast<ElementType>(n.integer("dtype", static_cast<int64_t>(otherwise)));
  const Item nearness = plus(n, times(n, drawn(n, shape), -1), 1);  // (0, 1]
  const Item radius = n.im.unary(UnaryKind::kSqrt, times(n, n.im.unary(UnaryKind::kLog, nearness), -2));
  const Item angle = times(n, drawn(n, shape), 2 * std::numbers::pi_v<float>);
  const Item normal = n.im.binary(BinaryKind::kMul, radius, n.im.unary(UnaryKind::kCos, angle));
  n.out(n.im.cast(plus(n, times(n, normal, n.number("scale", 1)), n.number("mean", 0)), type));
}

}  // namespace

void import_dropout(NodeImport& n) {
  float rate = n.number("ratio", 0.5f);
  if (n.has(1)) rate = n.number_in(1);
  // Old exports have no training_mode; new ones say by a constant in which mode they were written.
  const Item& x = n.in(0);
  if (!n.im.is_training() || rate == 0 || x.constant) return n.out(x);
  if (!(rate > 0 && rate < 1)) n.fail(fmt::format("a ratio of {}", rate));
  if (!n.im.step()) n.fail("has no counter of steps");
  const Axes order = n.im.order_of(x);
  const Value y = n.im.add_one(Dropout{rate, next_seed(n)}, {n.im.value_in(x, order), *n.im.step()});
  n.out(n.im.item_of(y, x.type, order));
}

void import_random_uniform(NodeImport& n) {
  add_uniform(n, shape_attribute(n), ElementType::kFloat);
}
void import_random_uniform_like(NodeImport& n) {
  add_uniform(n, n.in(0).shape, n.in(0).type);
}
void import_random_normal(NodeImport& n) {
  add_normal(n, shape_attribute(n), ElementType::kFloat);
}
void import_random_normal_like(NodeImport& n) {
  add_normal(n, n.in(0).shape, n.in(0).type);
}

// 1 with the probability of the operand.
void import_bernoulli(NodeImport& n) {
  const Item& share = n.in(0);
  const auto type = static_cast<ElementType>(n.integer("dtype", static_cast<int64_t>(share.type)));
  const Item is_one =
      n.im.compare(CompareKind::kLess, drawn(n, share.shape), n.im.cast(share, ElementType::kFloat));
  n.out(n.im.cast(is_one, type));
}

}  // namespace headroom::onnx
