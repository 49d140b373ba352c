// Every op with a gradient, against central differences of the op itself.

#include "runtime/graph/gradients.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <set>

#include "base/errors.h"
#include "runtime/graph/fuse.h"
#include "tests/runtime/graph/gradient_cases.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

using test::GradientCase;

class GradientTest : public testing::TestWithParam<GradientCase> {};

// loss = sum(weights * f(operands)), so that every output takes part with a weight of its own.
TEST_P(GradientTest, AgreesWithCentralDifferences) {
  const GradientCase& param = GetParam();
  CpuHarness cpu;
  Graph graph;
  const std::vector<Value> operands = test::operands_of(param, graph);
  const Value y = param.build(graph, operands);
  const Value weights = graph.variable("weights", y.spec(), uniform(0.5f, 1.5f, 3));
  const Value loss = sum(mul(y, weights));
  const std::vector<Value> grads = gradients(loss, operands);
  Variables variables(graph, cpu.device, *cpu.allocator);
  Targets targets{grads, false};
  Session backward(graph, targets, PlanMode::kDynamic, variables);
  Session forward(graph, {{y}, false}, PlanMode::kDynamic, variables);
  const std::vector<float> w = read<float>(variables, weights);
  // Summed in double on the host: a float sum would drown the difference.
  const auto loss_now = [&] {
    forward.run();
    const auto values = forward.output<float>(y);
    double total = 0;
    for (size_t i = 0; i < w.size(); ++i) total += static_cast<double>(w[i]) * static_cast<double>(values[i]);
    return total;
  };

  std::vector<std::vector<float>> points;
  for (size_t i = 0; i < operands.size(); ++i) {
    points.push_back(random_floats(operands[i].shape().elements(), 17 + i, param.low, param.high));
    write(variables, operands[i], points[i]);
  }
  backward.run();
  // A step of 2^-9 keeps both the rounding of float32 and the curvature below 1e-3 of a gradient near 1.
  constexpr float kStep = 0x1p-9f;
  constexpr double kTolerance = 4e-3;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::vector<float> analytic = fetch<float>(backward, grads[i]);
    ASSERT_EQ(grads[i].shape(), operands[i].shape());
    for (size_t j = 0; j < points[i].size(); ++j) {
      std::vector<float> moved = points[i];
      moved[j] = points[i][j] + kStep;
      write(variables, operands[i], moved);
      const double above = loss_now();
      moved[j] = points[i][j] - kStep;
      write(variables, operands[i], moved);
      const double below = loss_now();
      write(variables, operands[i], points[i]);
      const double numeric = (above - below) / (2 * static_cast<double>(kStep));
      const double expected = static_cast<double>(analytic[j]);
      EXPECT_NEAR(expected, numeric, kTolerance * std::max(1.0, std::abs(numeric)))
          << "operand " << i << ", element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientTest, testing::ValuesIn(test::gradient_cases()),
                         [](const auto& row) { return std::string(row.param.name); });

// A sum of one product for each leading index would take that many times the matrix's bytes.
TEST(Gradients, OfAMatrixThatMultipliesAllRowsIsOneProduct) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {6, 3, 5}});
  const Value w = graph.variable("w", {DType::kF32, {5, 2}}, ones());
  const Value gradient = gradients(sum(matmul(x, w)), std::vector<Value>{w})[0];
  for (const Node& node : graph.nodes()) {
    if (node.outputs[0] != gradient.id) continue;
    EXPECT_TRUE(std::holds_alternative<MatMul>(node.op)) << op_name(node.op);
    return;
  }
  FAIL() << "no node makes the gradient";
}

TEST(Gradients, AreZeroWhereTheLossDoesNotDependOnAVariable) {
  CpuHarness cpu;
  Graph graph;
  const Value x = graph.variable("x", {DType::kF32, {3}}, ones());
  const Value unused = graph.variable("unused", {DType::kF32, {2, 2}}, ones());
  const std::vector<Value> wrt = {x, unused};
  const std::vector<Value> grads = gradients(sum(x), wrt);
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {grads, false}, PlanMode::kDynamic, variables);
  session.run();
  EXPECT_EQ(fetch<float>(session, grads[0]), std::vector<float>(3, 1));
  EXPECT_EQ(fetch<float>(session, grads[1]), std::vector<float>(4, 0));
}

TEST(Gradients, OfTheFedImagesAreNotComputed) {
  for (bool blocks : {false, true}) {
    Graph graph;
    const Value images = graph.input("images", {DType::kF32, {1, 6, 6, 1}});
    const std::vector<Value> filters = {graph.variable("first", {DType::kF32, {3, 3, 1, 2}}, ones()),
                                        graph.variable("second", {DType::kF32, {3, 3, 2, 2}}, ones())};
    const Value zero = graph.variable("bias", {DType::kF32, {2}}, zeros());
    Value x = images;
    for (const Value& filter : filters) {
      x = blocks ? graph.add(ConvBlock{}, std::vector<Value>{x, filter, zero})[0] : conv2d(x, filter);
    }
    gradients(sum(x), filters);
    int of_images = 0;
    for (const Node& node : graph.nodes()) of_images += op_name(node.op).ends_with("_input_grad");
    EXPECT_EQ(of_images, 1) << "that of the second convolution";
  }
}

TEST(Gradients, RefuseNonScalarsAndPathsWithoutAGradient) {
  Graph graph;
  const Value x = graph.variable("x", {DType::kF32, {4, 3}}, ones());
  const Value labels = graph.input("labels", {DType::kI32, {4}});
  const std::vector<Value> wrt = {x};
  EXPECT_THROW(gradients(x, wrt), InvalidArgument);
  EXPECT_THROW(gradients(accuracy(x, labels), wrt), InvalidArgument);
  Graph other;
  const std::vector<Value> foreign = {other.variable("x", {DType::kF32, {4, 3}}, ones())};
  EXPECT_THROW(gradients(sum(x), foreign), InvalidArgument);
}

}  // namespace
}  // namespace headroom
