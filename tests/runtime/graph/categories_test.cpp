#include "runtime/graph/categories.h"

#include <gtest/gtest.h>

#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"

namespace headroom {
namespace {

MemoryCategory category(const Graph& graph, const Value& value) {
  return categorize(graph)[static_cast<size_t>(value.id)];
}

// x w -> relu -> mean, trained with Adam.
TEST(Categories, DistinguishWeightsGradientsStatesActivationsAndInputs) {
  for (const char* optimizer : {"sgd", "momentum", "rmsprop", "adamw"}) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {4, 3}});
    const Value w = graph.variable("w", {DType::kF32, {3, 2}}, ones());
    const Value b = graph.variable("b", {DType::kF32, {2}}, zeros());
    const Value y = relu(bias(matmul(x, w), b));
    const std::vector<Value> weights = {w, b};
    const std::vector<Value> grads = gradients(mean(y), weights);
    const Value rate = graph.variable("rate", {DType::kF32, {}}, ones());
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    add_updates(parse_optimizer(optimizer), weights, grads, rate, step);
    EXPECT_EQ(category(graph, x), MemoryCategory::kInputs);
    EXPECT_EQ(category(graph, y), MemoryCategory::kActivations);
    for (const Value& weight : weights) EXPECT_EQ(category(graph, weight), MemoryCategory::kWeights);
    for (const Value& grad : grads) EXPECT_EQ(category(graph, grad), MemoryCategory::kGradients);
    EXPECT_EQ(category(graph, step), MemoryCategory::kInputs);
    for (int id : graph.variables()) {
      const bool is_state = graph.value(id).name.find('/') != std::string::npos;
      EXPECT_EQ(category(graph, {&graph, id}) == MemoryCategory::kOptimizerState, is_state)
          << optimizer << " " << graph.value(id).name;
    }
  }
}

TEST(Categories, WithoutAnOptimizerVariablesWithAnInitialValueAreWeights) {
  Graph graph;
  const Value w = graph.variable("w", {DType::kF32, {3, 2}}, ones());
  const Value table = graph.variable("table", {DType::kF32, {3, 2}}, unset());
  EXPECT_EQ(category(graph, w), MemoryCategory::kWeights);
  EXPECT_EQ(category(graph, table), MemoryCategory::kInputs);
}

TEST(Categories, ATensorKnowsItsLineOfCodeAndAGradientThatOfItsForwardNode) {
  Graph graph;
  const Value w = graph.variable("w", {DType::kF32, {2}}, ones());
  const int line = __LINE__ + 1;
  const Value y = relu(w);
  const Value loss = mean(y);
  const std::vector<Value> grads = gradients(loss, std::vector<Value>{w});
  const std::string here = "categories_test.cpp:" + std::to_string(line);
  EXPECT_TRUE(graph.value(y.id).source.ends_with(here)) << graph.value(y.id).source;
  EXPECT_EQ(graph.value(grads[0].id).source, graph.value(y.id).source);
  EXPECT_TRUE(graph.value(grads[0].id).backward);
  EXPECT_FALSE(graph.value(loss.id).backward);
}

}  // namespace
}  // namespace headroom
