// ONNX ops that draw random numbers: others at each step, the same at each run of the program.
#include <fmt/format.h>

#include <numbers>

#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
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
