// Norms in 8 bits: the same forward pass, and nearly the same training in less memory.

#include "runtime/plan/compress_norms.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/models/zoo/layers.h"
#include "runtime/graph/data_flow.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/plan/frontier.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

constexpr int64_t kRows = 512, kColumns = 32;

// A sequence of layers with norms and relu, one of them with a residual.
struct NormNet {
  Graph graph;
  Value x, rate, loss, last;
  std::vector<Value> parameters;

  NormNet() {
    x = graph.input("x", {DType::kF32, {kRows, kColumns}});
    rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    Value value = x;
    for (int layer = 0; layer < 4; ++layer) {
      const NameScope scope(graph, "layer" + std::to_string(layer));
      const Value w = graph.variable("w", {DType::kF32, {kColumns, kColumns}},
                                     glorot_uniform({kColumns, kColumns}, static_cast<uint64_t>(layer + 1)));
      const BatchNormState state = batch_norm_state(graph, kColumns);
      parameters.insert(parameters.end(), {w, state.gamma, state.beta});
      Value normal = batch_norm_training(matmul(value, w), state);
      if (layer == 2) normal = add(normal, value);
      value = relu(normal);
    }
    last = value;
    const Value w = graph.variable("last", {DType::kF32, {kColumns, 4}}, glorot_uniform({kColumns, 4}, 9));
    parameters.push_back(w);
    const Value error = sub(matmul(value, w), slice_of_x());
    loss = mean(mul(error, error));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets targets(std::vector<Value> more = {}) const {
    more.insert(more.begin(), loss);
    return {more, true};
  }

 private:
  // Something to learn.
  Value slice_of_x() { return slice(x, {0, 0}, {kRows, 4}); }
};

struct TrainedNorms {
  std::vector<float> losses;
  int64_t step_bytes = 0;
};

TrainedNorms train_norms(const NormNet& net) {
  CpuHarness cpu;
  Variables variables(net.graph, cpu.device, *cpu.allocator);
  Session session(net.graph, net.targets(), PlanMode::kPacked, variables);
  const std::vector<float> values = random_floats(kRows * kColumns, 7);
  std::copy(values.begin(), values.end(), session.input<float>(net.x).begin());
  session.input<float>(net.rate)[0] = 0.01f;
  TrainedNorms trained{{}, session.plan().peak_bytes};
  for (int step = 0; step < 40; ++step) {
    session.run(1);
    trained.losses.push_back(session.output<float>(net.loss)[0]);
  }
  return trained;
}

int count_restored(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    const auto* apply = std::get_if<BatchNormApply>(&node.op);
    return apply && apply->compressed;
  }));
}

TEST(CompressNorms, TrainsNearlyAsWellInLessMemory) {
  NormNet exact, compressed;
  for (NormNet* net : {&exact, &compressed}) fuse(net->graph, net->targets().fetches);
  EXPECT_EQ(compress_norms(compressed.graph, compressed.targets().fetches), 4);
  const TrainedNorms a = train_norms(exact), b = train_norms(compressed);
  EXPECT_EQ(a.losses[0], b.losses[0]) << "the forward pass keeps its bits";
  EXPECT_LT(b.losses.back(), 0.5f * b.losses.front());
  EXPECT_NEAR(b.losses.back(), a.losses.back(), 0.05 * a.losses.front());
  EXPECT_LT(b.step_bytes, a.step_bytes);
}

TEST(CompressNorms, TheBackwardPassReadsRestoredResultsAndTheForwardPassTheOriginals) {
  NormNet net;
  fuse(net.graph, net.targets().fetches);
  compress_norms(net.graph, net.targets().fetches);
  EXPECT_EQ(count_restored(net.graph), 3) << "a residual cannot be restored from codes";
  for (const Node& node : net.graph.nodes()) {
    if (node.outputs.empty() || std::holds_alternative<BatchNormApply>(node.op)) continue;
    const bool is_backward = net.graph.value(node.outputs[0]).backward;
    for (const int input : node.inputs) {
      const bool is_restored = net.graph.value(input).name.find("/restored") != std::string::npos;
      EXPECT_TRUE(is_backward || !is_restored) << node.name;
    }
  }
}

TEST(CompressNorms, WhatIsFetchedIsNotRestored) {
  NormNet net;
  const Targets targets = net.targets({net.last});
  fuse(net.graph, targets.fetches);
  compress_norms(net.graph, targets.fetches);
  EXPECT_EQ(count_restored(net.graph), 2);
}

// A bottleneck of a residual net: convolutions of single pixels with norms, the last of which adds the input.
struct Bottleneck {
  Graph graph;
  Value x, rate, loss;
  std::vector<Value> parameters;

  Bottleneck() {
    constexpr int64_t kImages = 4, kExtent = 8, kWide = 32, kNarrow = 8;
    x = graph.input("x", {DType::kF32, {kImages, kExtent, kExtent, kWide}});
    rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    Value value = x;
    for (int block = 0; block < 3; ++block) {
      const auto conv_norm = [&](const char* name, Value from, int64_t channels) {
        const NameScope scope(graph, name + std::to_string(block));
        const Shape filter = {1, 1, from.shape().last(), channels};
        const Value w = graph.variable("w", {DType::kF32, filter},
                                       glorot_uniform(filter, static_cast<uint64_t>(parameters.size() + 1)));
        const BatchNormState state = batch_norm_state(graph, channels);
        parameters.insert(parameters.end(), {w, state.gamma, state.beta});
        return batch_norm_training(conv2d(from, w, {}), state);
      };
      value = relu(add(conv_norm("wide", relu(conv_norm("narrow", value, kNarrow)), kWide), value));
    }
    loss = mean(mul(value, value));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    fuse(graph, std::span(&loss, 1), Precision::kBf16);
  }
};

TEST(CompressNorms, GradientsOfBranchesReadABitForEachResult) {
  Bottleneck net;
  compress_norms(net.graph, std::vector<Value>{net.loss});
  int marked = 0;
  for (const Node& node : net.graph.nodes()) {
    const auto* branches = std::get_if<BranchGrad>(&node.op);
    if (branches == nullptr) continue;
    ++marked;
    EXPECT_TRUE(branches->marked);
    EXPECT_EQ(net.graph.value(node.inputs[1]).spec.bytes(),
              net.graph.value(node.inputs[0]).spec.shape.elements() / 8);
  }
  EXPECT_EQ(marked, 3);
}

TEST(CompressNorms, ABudgetComputesNormsAgainTogetherWithTheirConvolutions) {
  Bottleneck net;
  compress_norms(net.graph, std::vector<Value>{net.loss});
  const Targets targets{{net.loss}, true};
  const std::vector<int64_t> workspace(net.graph.nodes().size());
  const std::vector<double> us(net.graph.nodes().size(), 1);
  Frontier solver(net.graph, targets, {workspace, us});
  const StepPoint least = solver.solve(0);
  const std::unique_ptr<Graph> graph = rewritten(net.graph, least.schedule);
  std::vector<bool> is_read = read_values(*graph);
  const auto runs = std::count_if(graph->nodes().begin(), graph->nodes().end(), [&](const Node& node) {
    return std::holds_alternative<ConvNormApply>(node.op) && is_read[static_cast<size_t>(node.outputs[0])];
  });
  EXPECT_GT(runs, 0);
  const Plan plan = make_plan(*graph, {{Value{graph.get(), net.loss.id}}, true}, PlanMode::kPacked,
                              std::vector<int64_t>(graph->nodes().size()));
  EXPECT_EQ(find_fault(*graph, plan, std::vector<int64_t>(graph->nodes().size())), std::nullopt);
  EXPECT_EQ(plan.lower_bound_bytes, least.peak_bytes);
}

TEST(CompressNorms, AGraphWithoutNormsStaysAsItIs) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {4, 4}});
  const std::vector<Value> fetches = {relu(x)};
  EXPECT_EQ(compress_norms(graph, fetches), 0);
  EXPECT_EQ(graph.nodes().size(), 1u);
}

}  // namespace
}  // namespace headroom
