#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/graph/fuse.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

template <typename T>
int64_t ops_of(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return std::holds_alternative<T>(node.op); });
}

// All numbers of the fetched values in one run, with a wave in the inputs.
std::vector<float> results_of(Graph& graph, const std::vector<Value>& fetches,
                              const std::vector<Value>& inputs) {
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {fetches, false}, PlanMode::kPacked, variables);
  float number = 0;
  for (const Value& input : inputs) {
    for (float& element : session.input<float>(input)) element = std::sin(number += 1);
  }
  session.run();
  std::vector<float> results;
  for (const Value& fetched : fetches) {
    const std::vector<float> values = fetch<float>(session, fetched);
    results.insert(results.end(), values.begin(), values.end());
  }
  return results;
}

void expect_near(const std::vector<float>& apart, const std::vector<float>& fused) {
  ASSERT_EQ(apart.size(), fused.size());
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_NEAR(apart[i], fused[i], 1e-5 * (1 + std::abs(apart[i])));
}

// y = rms_norm(x) times a gate, as exports write it: one op a node.
Value gated_norm(const Value& x, const Value& weight, const Value& gate) {
  const Value mean_square = mean(unary(UnaryKind::kPower, x, 2), {1}, true);
  const Value inverse = unary(UnaryKind::kReciprocal, unary(UnaryKind::kSqrt, mean_square));
  return mul(mul(weight, mul(x, inverse)), mul(gate, sigmoid(gate)));
}

TEST(FuseExpressions, ElementwiseNodesBecomeExpressionsWithinRounding) {
  std::vector<float> results[2];
  int64_t kept_bytes[2] = {};
  for (const bool is_fused : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {6, 40}});
    const Value w = graph.variable("w", {DType::kF32, {40}}, glorot_uniform({40, 1}, 1));
    const Value a = graph.variable("a", {DType::kF32, {40, 40}}, glorot_uniform({40, 40}, 2));
    const Value b = graph.variable("b", {DType::kF32, {40, 40}}, glorot_uniform({40, 40}, 3));
    const Value y = gated_norm(matmul(x, a), w, matmul(x, b));
    const Value loss = mean(mul(y, y));
    std::vector<Value> fetches = gradients(loss, std::vector<Value>{w, a, b});
    fetches.push_back(loss);
    if (is_fused) {
      fuse(graph, fetches);
      EXPECT_EQ(ops_of<Unary>(graph) + ops_of<UnaryGrad>(graph), 0);
      EXPECT_GE(ops_of<ReducedExpression>(graph), 2);  // the mean of the squares, and the loss
      EXPECT_EQ(ops_of<BroadcastTo>(graph), 0);
      EXPECT_GE(ops_of<Expression>(graph), 4);
    }
    for (const Node& node : graph.nodes()) {
      for (const int output : node.outputs) {
        if (!std::holds_alternative<Reshape>(node.op))
          kept_bytes[is_fused] += graph.value(output).spec.bytes();
      }
    }
    results[is_fused] = results_of(graph, fetches, {x});
  }
  expect_near(results[0], results[1]);
  EXPECT_LT(kept_bytes[1], kept_bytes[0] * 3 / 4);
}

TEST(FuseExpressions, ARotationOfHalvesIsOneExpressionBothWays) {
  std::vector<float> results[2];
  for (const bool is_fused : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {2, 5, 3, 16}});
    const Value w = graph.variable("w", {DType::kF32, {16}}, glorot_uniform({16, 1}, 1));
    const Value cos = graph.input("cos", {DType::kF32, {5, 1, 16}}),
                sin = graph.input("sin", {DType::kF32, {5, 1, 16}});
    const Value y = mul(x, w);
    const Value low = slice(y, {0, 0, 0, 0}, {2, 5, 3, 8}), high = slice(y, {0, 0, 0, 8}, {2, 5, 3, 8});
    const Value turned = add(mul(y, cos), mul(concat({scale(high, -1), low}, 3), sin));
    const Value loss = mean(mul(turned, turned));
    std::vector<Value> fetches = gradients(loss, std::vector<Value>{w});
    fetches.push_back(turned);
    if (is_fused) {
      fuse(graph, fetches);
      EXPECT_EQ(ops_of<Slice>(graph) + ops_of<Concat>(graph) + ops_of<SliceGrad>(graph), 0);
      EXPECT_EQ(ops_of<Binary>(graph) + ops_of<Scale>(graph), 0);
    }
    results[is_fused] = results_of(graph, fetches, {x, cos, sin});
  }
  expect_near(results[0], results[1]);
}

// A slice that a concatenation makes shorter than its operand shows nothing of it beyond its part.
TEST(FuseExpressions, AConcatenationKeepsASliceInsideItsPart) {
  std::vector<float> results[2];
  for (const bool is_fused : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {4, 6}}), one = graph.input("one", {DType::kF32, {4, 2}});
    const Value joined = concat({sigmoid(slice(x, {0, 0}, {4, 4})), one}, 1);
    const std::vector<Value> fetches = {add(mul(joined, x), concat({slice(x, {0, 0}, {4, 4}), one}, 1))};
    if (is_fused) {
      fuse(graph, fetches);
      EXPECT_EQ(ops_of<Slice>(graph) + ops_of<Concat>(graph), 0);
    }
    results[is_fused] = results_of(graph, fetches, {x, one});
  }
  expect_near(results[0], results[1]);
}

TEST(FuseExpressions, AFunctionAndItsOperandBecomeOneExpression) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2, 3}});
  const Value y = mul(x, sigmoid(x));
  fuse(graph, std::vector<Value>{y});
  EXPECT_EQ(ops_of<Unary>(graph) + ops_of<Binary>(graph), 0);
  EXPECT_EQ(ops_of<Expression>(graph), 1);
}

TEST(FuseExpressions, AnElementwiseValueStaysWhereItIsFetchedOrItsOperandChangesInBetween) {
  const auto count = [](bool is_fetched, bool changes) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {2, 3}});
    const Value w = graph.variable("w", {DType::kF32, {2, 3}}, zeros());
    const Value inner = add(x, w);
    if (changes) graph.add(MovingAverageUpdate{}, std::vector<Value>{w, fill(graph, 1, {2, 3})});
    const Value y = mul(sigmoid(inner), x);
    fuse(graph, is_fetched ? std::vector<Value>{y, inner} : std::vector<Value>{y});
    return std::pair(ops_of<Binary>(graph), ops_of<Expression>(graph));
  };
  EXPECT_EQ(count(false, false), std::pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ(count(true, false), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(count(false, true), std::pair(int64_t{1}, int64_t{1}));
}

TEST(FuseExpressions, AValueThatCostsMoreToComputeAgainIsStored) {
  Graph graph;
  const Value a = graph.input("a", {DType::kF32, {2, 3}}), b = graph.input("b", {DType::kF32, {2, 3}});
  const Value both = add(a, b);
  std::vector<Value> fetches;
  for (const UnaryKind kind : {UnaryKind::kExp, UnaryKind::kTanh, UnaryKind::kAbs, UnaryKind::kSign})
    fetches.push_back(unary(kind, both));
  fuse(graph, fetches);
  EXPECT_EQ(ops_of<Expression>(graph), 0);
  EXPECT_EQ(ops_of<Binary>(graph), 1);
}

}  // namespace
}  // namespace headroom
