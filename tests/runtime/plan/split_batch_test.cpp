// Batches in parts: the same training except for rounding, in less memory.

#include "runtime/plan/split_batch.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

constexpr int64_t kRows = 4096, kColumns = 16;

// A training step of a batch; the counter makes rows of the step's batch out of a table.
struct BatchNet {
  Graph graph;
  Value x, table, rate, step, loss, rows;
  std::vector<Value> parameters;

  explicit BatchNet(int64_t batch, bool normalizes = false) {
    x = graph.input("x", {DType::kF32, {batch, kColumns}});
    rate = graph.input("rate", {DType::kF32, {}});
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    table = graph.variable("table", {DType::kF32, {kRows, kColumns}}, glorot_uniform({kRows, kColumns}, 3));
    const Value taken = take_batch(table, step, {batch});
    // A constant with a row for each of the batch, as exporters write positions.
    const Value positions = graph.variable("positions", {DType::kF32, {batch, kColumns}}, constant_of(0.5f));
    const auto weight = [&](const char* name, int64_t columns) {
      parameters.push_back(graph.variable(name, {DType::kF32, {kColumns, columns}},
                                          glorot_uniform({kColumns, columns}, parameters.size() + 1)));
      return parameters.back();
    };
    Value y = matmul(add(add(x, taken), positions), weight("w1", kColumns));
    if (normalizes) {
      const BatchNormState state = batch_norm_state(graph, kColumns);
      parameters.insert(parameters.end(), {state.gamma, state.beta});
      y = batch_norm_training(y, state);
    }
    y = gelu(y);
    y = reshape(tanh(reshape(y, {batch * kColumns})), {batch, kColumns});
    rows = matmul(y, weight("w2", 4));
    loss = mean(mul(rows, rows));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets targets() const { return {{loss, rows}, true}; }
};

struct TrainedParts {
  std::vector<float> weights, rows;
  float loss = 0;
  int64_t step_bytes = 0;
};

TrainedParts train(const BatchNet& net, Graph& graph, PlanMode mode) {
  const auto here = [&](const Value& value) { return Value{&graph, value.id}; };
  const Targets targets{{here(net.loss), here(net.rows)}, true};
  const std::vector<int64_t> workspace(graph.nodes().size());
  const Plan plan = make_plan(graph, targets, mode, workspace);
  EXPECT_EQ(find_fault(graph, plan, workspace), std::nullopt);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, targets, mode, variables);
  const std::vector<float> data = random_floats(net.x.shape().elements(), 5);
  std::copy(data.begin(), data.end(), session.input<float>(here(net.x)).begin());
  session.input<float>(here(net.rate))[0] = 1e-2f;
  for (int i = 0; i < 2; ++i) session.run();
  TrainedParts trained{{},
                       fetch<float>(session, here(net.rows)),
                       session.output<float>(here(net.loss))[0],
                       plan.lower_bound_bytes};
  for (const Value& parameter : net.parameters) {
    const std::vector<float> values = read<float>(variables, here(parameter));
    trained.weights.insert(trained.weights.end(), values.begin(), values.end());
  }
  return trained;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(SplitBatch, TrainsAsTheWholeBatchDoesButForRounding) {
  for (const PlanMode mode : kPlanModes) {
    const BatchNet whole(16);
    const std::unique_ptr<Graph> unsplit = whole.graph.copy();
    const TrainedParts expected = train(whole, *unsplit, mode);
    for (const int parts : {2, 4, 16}) {
      const BatchNet part(16 / parts);
      const std::unique_ptr<Graph> graph = whole.graph.copy();
      const Targets targets = whole.targets();
      split_batch(*graph, part.graph, parts, {&targets, 1});
      const TrainedParts trained = train(whole, *graph, mode);
      expect_near(trained.weights, expected.weights, 2e-4f);  // Adam divides by what is nearly nothing
      expect_near(trained.rows, expected.rows, 1e-3f);
      EXPECT_NEAR(trained.loss, expected.loss, 1e-4f);
    }
  }
}

TEST(SplitBatch, HoldsTheValuesOfOnePartAtATime) {
  const BatchNet whole(kRows), part(kRows / 8);
  const std::unique_ptr<Graph> unsplit = whole.graph.copy(), graph = whole.graph.copy();
  const Targets targets = whole.targets();
  split_batch(*graph, part.graph, 8, {&targets, 1});
  const auto bytes = [&](const Graph& of) {
    const std::vector<int64_t> workspace(of.nodes().size());
    return make_plan(of, {{}, true}, PlanMode::kPacked, workspace).lower_bound_bytes;
  };
  EXPECT_LT(bytes(*graph), bytes(*unsplit) * 2 / 3);
}

TEST(SplitBatch, AddsTheGradientsOfAPartInOneNode) {
  const BatchNet whole(16), part(4);
  const std::unique_ptr<Graph> graph = whole.graph.copy();
  const Targets targets = whole.targets();
  split_batch(*graph, part.graph, 4, {&targets, 1});
  const auto& nodes = graph->nodes();
  const auto is_sum = [](const Node& node) { return std::holds_alternative<AddPairs>(node.op); };
  EXPECT_GT(whole.parameters.size(), 1U);
  EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(), is_sum), 3);
}

TEST(SplitBatch, BatchNormalizationTakesItsStatisticsFromAPart) {
  const BatchNet whole(16, true), part(8, true);
  const std::unique_ptr<Graph> graph = whole.graph.copy();
  const Targets targets = whole.targets();
  split_batch(*graph, part.graph, 2, {&targets, 1});
  const std::unique_ptr<Graph> unsplit = whole.graph.copy();
  const TrainedParts split = train(whole, *graph, PlanMode::kPacked);
  const TrainedParts expected = train(whole, *unsplit, PlanMode::kPacked);
  EXPECT_TRUE(std::isfinite(split.loss));
  EXPECT_NE(split.weights, expected.weights);
}

TEST(SplitBatch, RefusesTheGraphOfAnotherNetAndOfAnotherBatch) {
  const BatchNet whole(16), other(8, true), odd(5);
  const Targets targets = whole.targets();
  EXPECT_NE(why_not_split(whole.graph, other.graph, 2, {&targets, 1}), "");
  EXPECT_NE(why_not_split(whole.graph, odd.graph, 3, {&targets, 1}), "");
  EXPECT_NE(why_not_split(whole.graph, whole.graph, 1, {&targets, 1}), "");
  Graph copy;
  EXPECT_THROW(split_batch(copy, whole.graph, 2, {&targets, 1}), InvalidArgument);
}

}  // namespace
}  // namespace headroom
