// Every op with a gradient, against central differences of the op itself.

#include "runtime/graph/gradients.h"

#include <cmath>
#include <functional>
#include <set>

#include "runtime/base/errors.h"
#include "runtime/graph/fuse.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

struct GradientCase {
  const char* name;
  std::vector<Shape> shapes;  // of the float operands
  std::function<Value(Graph&, const std::vector<Value>&)>
      build;                 // any shape; the loss is a weighted sum of it
  float low = -1, high = 1;  // range of the operands
};

void PrintTo(const GradientCase& row, std::ostream* out) {
  *out << row.name;
}

// An i32 constant: variables are the only integers with a value of their own.
Value counter(Graph& graph, const char* name, const Shape& shape, float value) {
  return graph.variable(name, {DType::kI32, shape}, constant_of(value));
}

const std::vector<GradientCase>& cases() {
  using V = const std::vector<Value>&;
  static const std::vector<GradientCase> kCases = {
      {"matmul", {{3, 4}, {4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"matmul_ta",
       {{4, 3}, {4, 2}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {true, false});
       }},
      {"matmul_tb",
       {{3, 4}, {2, 4}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {false, true});
       }},
      {"matmul_tatb",
       {{4, 3}, {2, 4}},
       [](Graph&, V v) {
         return matmul(v[0], v[1], {true, true});
       }},
      {"matmul_batch", {{2, 3, 4}, {2, 4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"matmul_shared", {{2, 3, 4}, {4, 2}}, [](Graph&, V v) { return matmul(v[0], v[1]); }},
      {"dense", {{3, 4}, {4, 2}, {2}}, [](Graph& g, V v) { return g.add(Dense{}, v)[0]; }},
      {"dense_relu", {{3, 4}, {4, 2}, {2}}, [](Graph& g, V v) { return g.add(Dense{true}, v)[0]; }},
      {"conv2d", {{2, 5, 6, 2}, {3, 2, 2, 3}}, [](Graph&, V v) { return conv2d(v[0], v[1]); }},
      {"conv2d_all",
       {{1, 7, 6, 4}, {3, 2, 2, 4}},
       [](Graph&, V v) {
         return conv2d(v[0], v[1], {{2, 1}, {1, 2}, {1, 2}, 2});
       }},
      {"max_pool", {{2, 5, 4, 3}}, [](Graph&, V v) { return max_pool(v[0]); }},
      {"max_pool_overlap",
       {{1, 5, 5, 2}},
       [](Graph&, V v) {
         return max_pool(v[0], {{3, 3}, {2, 2}, {1, 1}});
       }},
      {"avg_pool",
       {{1, 5, 5, 2}},
       [](Graph&, V v) {
         return avg_pool(v[0], {{3, 2}, {2, 1}, {1, 1}});
       }},
      {"bias", {{4, 3}, {3}}, [](Graph&, V v) { return bias(v[0], v[1]); }},
      {"relu", {{3, 5}}, [](Graph&, V v) { return relu(v[0]); }},
      {"sigmoid", {{3, 5}}, [](Graph&, V v) { return sigmoid(v[0]); }},
      {"tanh", {{3, 5}}, [](Graph&, V v) { return tanh(v[0]); }},
      {"gelu", {{3, 5}}, [](Graph&, V v) { return gelu(v[0]); }},
      {"scale", {{3, 5}}, [](Graph&, V v) { return scale(v[0], -2.5f); }},
      {"add_broadcast", {{2, 1, 3}, {4, 1}}, [](Graph&, V v) { return add(v[0], v[1]); }},
      {"sub_broadcast", {{2, 3}, {1, 3}}, [](Graph&, V v) { return sub(v[0], v[1]); }},
      {"mul_broadcast", {{2, 3}, {2, 1}}, [](Graph&, V v) { return mul(v[0], v[1]); }},
      {"mul_itself", {{2, 3}}, [](Graph&, V v) { return mul(v[0], v[0]); }},
      {"div_broadcast", {{2, 3}, {3}}, [](Graph&, V v) { return div(v[0], v[1]); }, 0.5f, 2},
      {"sum_axis", {{2, 3, 2}}, [](Graph&, V v) { return sum(v[0], {1}); }},
      {"mean_axes",
       {{2, 3, 2}},
       [](Graph&, V v) {
         return mean(v[0], {0, -1}, true);
       }},
      {"max_axis", {{3, 4, 2}}, [](Graph&, V v) { return max(v[0], {1}); }},
      {"reshape",
       {{2, 6}},
       [](Graph&, V v) {
         return relu(reshape(v[0], {3, 4}));
       }},
      {"flatten", {{2, 3, 2}}, [](Graph&, V v) { return flatten(v[0]); }},
      {"to_device", {{2, 3}}, [](Graph&, V v) { return relu(to_device(v[0], "")); }},
      {"transpose",
       {{2, 3, 4}},
       [](Graph&, V v) {
         return transpose(v[0], {2, 0, 1});
       }},
      {"concat",
       {{2, 3}, {2, 1}},
       [](Graph&, V v) {
         return concat({v[0], v[1]}, 1);
       }},
      {"slice",
       {{4, 5}},
       [](Graph&, V v) {
         return slice(v[0], {1, 2}, {2, 3});
       }},
      {"gather",
       {{4, 3}},
       [](Graph& g, V v) {
         return gather(v[0], counter(g, "indices", {2, 2}, 2));
       }},
      {"broadcast_to",
       {{3, 1}},
       [](Graph&, V v) {
         return broadcast_to(v[0], {2, 3, 4});
       }},
      {"dropout", {{6, 7}}, [](Graph& g, V v) { return dropout(v[0], 0.4f, 11, counter(g, "step", {}, 3)); }},
      {"softmax", {{3, 4}}, [](Graph&, V v) { return softmax(v[0]); }},
      {"cross_entropy",
       {{3, 4}},
       [](Graph& g, V v) { return cross_entropy(v[0], counter(g, "labels", {3}, 1)); }},
      {"batch_norm", {{5, 3}, {3}, {3}}, [](Graph& g, V v) { return g.add(BatchNorm{}, v)[0]; }},
      {"batch_norm_image", {{2, 3, 2, 2}, {2}, {2}}, [](Graph& g, V v) { return g.add(BatchNorm{}, v)[0]; }},
      {"conv_block",
       {{2, 5, 5, 2}, {3, 3, 2, 4}, {4}},
       [](Graph& g, V v) { return g.add(ConvBlock{}, v)[0]; }},
      {"conv_block_pooled",
       {{2, 8, 7, 2}, {3, 3, 2, 4}, {4}},
       [](Graph& g, V v) {
         return g.add(ConvBlock{{}, Pool2d{}}, v)[0];
       }},
      {"two_paths", {{2, 3}}, [](Graph&, V v) { return add(relu(v[0]), mul(v[0], sigmoid(v[0]))); }},
  };
  return kCases;
}

class GradientTest : public testing::TestWithParam<GradientCase> {};

// loss = sum(weights * f(operands)), so that every output takes part with a weight of its own.
TEST_P(GradientTest, AgreesWithCentralDifferences) {
  const GradientCase& param = GetParam();
  CpuHarness cpu;
  Graph graph;
  std::vector<Value> operands;
  for (size_t i = 0; i < param.shapes.size(); ++i) {
    operands.push_back(graph.variable("x" + std::to_string(i), {DType::kF32, param.shapes[i]}, zeros()));
  }
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

INSTANTIATE_TEST_SUITE_P(Ops, GradientTest, testing::ValuesIn(cases()),
                         [](const auto& row) { return std::string(row.param.name); });

// The table above must follow the list of ops: what is in neither set has been forgotten.
TEST(GradientTable, CoversEveryOpThatHasAGradient) {
  std::set<std::string_view> covered;
  for (const GradientCase& row : cases()) {
    Graph graph;
    std::vector<Value> operands;
    for (size_t i = 0; i < row.shapes.size(); ++i) {
      operands.push_back(graph.variable("x" + std::to_string(i), {DType::kF32, row.shapes[i]}, zeros()));
    }
    row.build(graph, operands);
    for (const Node& node : graph.nodes()) covered.insert(op_name(node.op));
  }
  for (std::string_view op : op_names()) {
    const bool makes_gradients = op.ends_with("_grad") || op.ends_with("_update");
    const bool has_none = op == "argmax" || op == "accuracy" || op == "cast" || op == "fill" ||
                          op == "take_batch" || op == "all_reduce" || op == "batch_norm_inference" ||
                          op == "classifier_head";
    EXPECT_TRUE(covered.contains(op) || makes_gradients || has_none) << op;
  }
}

TEST(Gradients, OfWhatTheLossDoesNotDependOnAreZero) {
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

TEST(Gradients, OfTheImagesThatAConvolutionIsFedAreNotComputed) {
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

TEST(Gradients, RefuseWhatIsNoScalarAndPathsWithoutAGradient) {
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
