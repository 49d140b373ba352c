#include "runtime/graph/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

namespace headroom::test {
namespace {

// x (8,16) -> 32 -> layer_norm -> 4 classes, trained by SGD.
struct SmallStep {
  Graph graph;
  Value x, labels, rate, counter, w, loss, hidden, logits;
  std::vector<Value> parameters, all_gradients;
  std::optional<AdaptiveScale> scale;

  explicit SmallStep(Precision precision) {
    x = graph.input("x", {DType::kF32, {8, 16}});
    labels = graph.input("labels", {DType::kI32, {8}});
    rate = graph.input("rate", {DType::kF32, {}});
    counter = graph.variable("step", {DType::kI32, {}}, zeros());
    w = graph.variable("w", {DType::kF32, {16, 32}}, uniform(-0.3f, 0.3f, 1));
    const Value v = graph.variable("v", {DType::kF32, {32, 4}}, uniform(-0.3f, 0.3f, 2));
    const Value b = graph.variable("b", {DType::kF32, {32}}, zeros());
    const Value gamma = graph.variable("gamma", {DType::kF32, {32}}, ones());
    const Value beta = graph.variable("beta", {DType::kF32, {32}}, zeros());
    hidden = gelu(add(matmul(x, w), b));
    logits = matmul(layer_norm(hidden, gamma, beta), v);
    loss = mean(cross_entropy(logits, labels));
    parameters = {w, v, b, gamma, beta};
    if (precision == Precision::kF16) {
      scale = adaptive_scale(graph);
      all_gradients = gradients(mul(loss, scale->scale), parameters);
      add_scaled_updates(Sgd{}, parameters, all_gradients, rate, counter, *scale);
    } else {
      all_gradients = gradients(loss, parameters);
      add_updates(Sgd{}, parameters, all_gradients, rate, counter);
    }
    store_in(graph, precision, std::vector<Value>{loss});
  }
};

struct Losses {
  std::vector<float> values;
  float scale = 0;
};

Losses train_small(Precision precision, const char* device, float factor = 1, int steps = 12) {
  SmallStep step(precision);
  Runtime runtime({.device = device});
  Variables variables(step.graph, runtime.device(), runtime.allocator());
  Session session(step.graph, {{step.loss}, true}, PlanMode::kPacked, variables);
  Losses losses;
  for (int i = 0; i < steps; ++i) {
    int64_t at = 0;
    for (float& number : session.input<float>(step.x))
      number = factor * std::sin(static_cast<float>(++at) * 1.3f);
    at = 0;
    for (int32_t& label : session.input<int32_t>(step.labels)) label = static_cast<int32_t>(at++ % 4);
    session.input<float>(step.rate)[0] = 0.1f;
    session.run();
    losses.values.push_back(session.output<float>(step.loss)[0]);
  }
  if (step.scale) {
    const std::vector<std::byte> bytes = variables.read(step.scale->scale);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(&losses.scale));
  }
  return losses;
}

DType dtype_of_value(const Value& value) {
  return value.spec().dtype;
}

TEST(Precision, ActivationsAndGradientsAreHalfAndMastersAreWhole) {
  const SmallStep step(Precision::kBf16);
  EXPECT_EQ(dtype_of_value(step.hidden), DType::kBf16);
  EXPECT_EQ(dtype_of_value(step.logits), DType::kBf16);
  EXPECT_EQ(dtype_of_value(step.loss), DType::kF32);
  for (const Value& parameter : step.parameters) EXPECT_EQ(dtype_of_value(parameter), DType::kF32);
  EXPECT_EQ(dtype_of_value(step.all_gradients[0]), DType::kBf16);
  EXPECT_EQ(dtype_of_value(step.all_gradients[3]), DType::kF32);  // sums over the batch
  // Only its cast and its update read the weight.
  int casts = 0;
  for (const Node& node : step.graph.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), step.w.id) == node.inputs.end()) continue;
    casts += std::holds_alternative<Cast>(node.op) ? 1 : 0;
    EXPECT_TRUE(std::holds_alternative<Cast>(node.op) || is_update(node.op)) << node.name;
  }
  EXPECT_EQ(casts, 1);
}

TEST(Precision, CastsOfWeightsAreOneNodeUpToABound) {
  const auto casts_of = [](const std::vector<int64_t>& rows) {
    Graph graph;
    Value x = graph.input("x", {DType::kF32, {4, 1024}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> weights, gradients;
    for (const int64_t n : rows) {
      const Shape shape{x.shape()[1], n};
      weights.push_back(graph.variable("w_" + std::to_string(weights.size()), {DType::kF32, shape}, zeros()));
      gradients.push_back(fill(graph, 0, shape));
      x = matmul(x, weights.back());
    }
    add_updates(Sgd{}, weights, gradients, rate, step);
    store_in(graph, Precision::kBf16, std::vector<Value>{x});
    std::vector<size_t> casts;
    for (const Node& node : graph.nodes()) {
      if (!std::holds_alternative<Cast>(node.op)) continue;
      const bool is_of_weights = graph.value(node.inputs[0]).kind == ValueKind::kVariable;
      if (is_of_weights) casts.push_back(node.inputs.size());
    }
    return casts;
  };
  EXPECT_EQ(casts_of({1024, 512, 8}), std::vector<size_t>{3});
  // 8 MiB, 8 MiB and 4 MiB: the third exceeds 16 MiB. A larger one than that is alone.
  EXPECT_EQ(casts_of({4096, 1024, 2048, 64}), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(casts_of({16384, 1}), (std::vector<size_t>{1, 1}));
}

TEST(Precision, F32IsLeftAlone) {
  const SmallStep step(Precision::kF32);
  for (const ValueInfo& value : step.graph.values()) EXPECT_FALSE(is_half(value.spec.dtype)) << value.name;
}

TEST(Precision, WhatIsFetchedIsTheStoredNumberInF32) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2, 2}});
  const Value y = matmul(x, x);
  store_in(graph, Precision::kBf16, std::vector<Value>{y});
  EXPECT_EQ(dtype_of_value(y), DType::kF32);
  Runtime runtime({.device = "cpu"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {{y}}, PlanMode::kDynamic, variables);
  // Rounded to 8 bits: 1.001 becomes 1, and 1 + 2 * 2^-7 stays.
  const std::vector<float> numbers = {1.001f, 0, 0, 1 + 0x1p-6f};
  std::copy(numbers.begin(), numbers.end(), session.input<float>(x).begin());
  session.run();
  EXPECT_EQ(session.output<float>(y)[0], 1);
  EXPECT_EQ(session.output<float>(y)[3], 1 + 0x1p-5f);
}

// A weight that is not trained needs no master in f32 and no cast, and the bits of its products are the same.
// A weight that is also read in f32 stays f32.
TEST(Precision, WhatNoNodeChangesIsStoredAsItsReadersWantIt) {
  const Initializer numbers = given([] {
    std::vector<float> floats(16 * 16);
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = std::sin(static_cast<float>(i));
    const auto* bytes = reinterpret_cast<const std::byte*>(floats.data());
    return std::vector<std::byte>(bytes, bytes + floats.size() * sizeof(float));
  });
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    Graph graph;
    const TensorSpec matrix{DType::kF32, {16, 16}};
    const Value x = graph.input("x", matrix), index = graph.input("index", {DType::kI32, {4}});
    const Value constant = graph.variable("constant", matrix, numbers);
    const Value trained = graph.variable("trained", matrix, numbers);
    const Value mixed = graph.variable("mixed", matrix, numbers);
    const Value table = graph.variable("table", matrix, constant_of(0.1f));
    const Value gamma = graph.variable("gamma", {DType::kF32, {16}}, ones());
    const Value by_constant = matmul(x, constant), by_trained = matmul(x, trained);
    const Value rows = gather(table, index), scaled = mul(matmul(x, mixed), gamma);
    const std::vector<Value> fetches = {by_constant, by_trained, rows, scaled, unary(UnaryKind::kExp, mixed)};
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    add_updates(Sgd{}, std::vector{trained}, std::vector{fill(graph, 0, {16, 16})}, rate, step);
    store_in(graph, precision, fetches);
    for (const Value& value : {constant, table}) EXPECT_TRUE(is_half(dtype_of_value(value))) << value.name();
    for (const Value& value : {trained, mixed, gamma}) EXPECT_EQ(dtype_of_value(value), DType::kF32);
    Runtime runtime({.device = "cpu"});
    Variables variables(graph, runtime.device(), runtime.allocator());
    Session session(graph, {fetches}, PlanMode::kPacked, variables);
    for (float& number : session.input<float>(x)) number = 0.3f;
    session.run();
    EXPECT_TRUE(std::ranges::equal(session.output<float>(by_constant), session.output<float>(by_trained)));
    EXPECT_NEAR(session.output<float>(rows)[0], 0.1f, 1e-3f);
    EXPECT_NE(session.output<float>(rows)[0], 0.1f);
  }
}

TEST(Precision, LearnsAsF32DoesAndTheSameOnEachDevice) {
  const Losses whole = train_small(Precision::kF32, "cpu");
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    const Losses half = train_small(precision, "cpu");
    EXPECT_EQ(half.values, train_small(precision, "sim").values);
    EXPECT_NE(half.values, whole.values);
    for (size_t i = 0; i < whole.values.size(); ++i) EXPECT_NEAR(half.values[i], whole.values[i], 0.02f);
  }
}

// Small numbers have large gradients before a normalization. If these become infinite, no weight changes, the
// scale halves, and training continues.
TEST(Precision, TheLossScaleAdapts) {
  EXPECT_EQ(train_small(Precision::kF16, "cpu").scale, 65536);
  const Losses small = train_small(Precision::kF16, "cpu", 1e-3f, 8);
  EXPECT_LT(small.scale, 65536);
  EXPECT_EQ(small.values[0], small.values[1]);
  for (float loss : small.values) EXPECT_TRUE(std::isfinite(loss));
}

}  // namespace
}  // namespace headroom::test
