#include "runtime/graph/fuse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

template <typename T>
int64_t count_of(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return std::holds_alternative<T>(node.op); });
}

TEST(Fuse, KeepsPartsThatOthersReadOrFetch) {
  {
    SmallNet net;
    const Value conv{&net.graph, net.graph.node(0).outputs[0]};
    EXPECT_EQ(fuse(net.graph, std::vector<Value>{conv}), 0);
  }
  SmallNet net;
  sum(Value{&net.graph, net.graph.node(2).outputs[0]});  // a second reader of the relu: the pool stays apart
  EXPECT_EQ(fuse(net.graph), 1);
  EXPECT_EQ(count_of<MaxPool>(net.graph), 1);
}

// Three dense layers; the last two are a head.
struct DenseNet {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {6, 7}});
  Value labels = graph.input("labels", {DType::kI32, {6}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  std::vector<Value> parameters;
  Value hidden, middle, logits, losses, loss, score;

  DenseNet() {
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    hidden = relu(dense(x, 12));
    middle = dense(hidden, 8);
    logits = dense(relu(middle), 5);
    losses = cross_entropy(logits, labels);
    loss = mean(losses);
    score = accuracy(logits, labels);
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Value dense(Value from, int64_t units) {
    const std::string name = "dense_" + std::to_string(parameters.size());
    const Shape shape = {from.shape()[1], units};
    parameters.push_back(
        graph.variable(name, {DType::kF32, shape}, glorot_uniform(shape, parameters.size())));
    parameters.push_back(graph.variable(name + "/bias", {DType::kF32, {units}}, constant_of(0.1f)));
    return bias(matmul(from, *(parameters.end() - 2)), parameters.back());
  }
  // Loss, score and weights after three steps.
  std::vector<uint64_t> results(PlanMode mode) {
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{loss, score}, true}, mode, variables);
    const std::vector<float> values = random_floats(42, 7);
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    for (int i = 0; i < 6; ++i) session.input<int32_t>(labels)[static_cast<size_t>(i)] = i % 5;
    session.input<float>(rate)[0] = 1e-2f;
    session.run(3);
    return {std::bit_cast<uint32_t>(session.output<float>(loss)[0]),
            std::bit_cast<uint32_t>(session.output<float>(score)[0]), variables.checksum(parameters)};
  }
};

TEST(Fuse, AClassifiersHeadBecomesOneNodeWithTheSameBits) {
  for (PlanMode mode : kPlanModes) {
    DenseNet apart, fused;
    EXPECT_EQ(fuse(fused.graph), 2);  // and the layer below it
    EXPECT_EQ(count_of<ClassifierHead>(fused.graph), 1);
    EXPECT_EQ(count_of<CrossEntropyGrad>(fused.graph), 0);
    EXPECT_EQ(fused.results(mode), apart.results(mode)) << to_string(mode);
  }
}

TEST(Fuse, AHeadStaysApartWhereAPartIsFetchedOrReadByOthers) {
  DenseNet fetched;
  fuse(fetched.graph, std::vector<Value>{fetched.middle});
  EXPECT_EQ(count_of<ClassifierHead>(fetched.graph), 0);
  DenseNet read;
  sum(read.middle);
  fuse(read.graph);
  EXPECT_EQ(count_of<ClassifierHead>(read.graph), 0);
  DenseNet outputs;  // the head's own results may be fetched
  fuse(outputs.graph, std::vector<Value>{outputs.logits, outputs.losses});
  EXPECT_EQ(count_of<ClassifierHead>(outputs.graph), 1);
}

TEST(Fuse, DenseLayersBecomeOneNodeEachWithTheSameBits) {
  for (PlanMode mode : kPlanModes) {
    DenseNet apart, fused;
    // The fetched value keeps the last two layers from being a head.
    EXPECT_EQ(fuse(fused.graph, std::vector<Value>{fused.middle}), 3);
    EXPECT_EQ(count_of<Dense>(fused.graph), 3);
    EXPECT_EQ(count_of<DenseFilterGrad>(fused.graph), 3);
    EXPECT_EQ(fused.results(mode), apart.results(mode)) << to_string(mode);
  }
}

// The first value to fetch, and the weights, after three steps on 42 numbers.
std::pair<float, uint64_t> after_three_steps(const Graph& graph, const std::vector<Value>& fetches,
                                             const Value& x, const Value& rate,
                                             const std::vector<Value>& parameters) {
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {fetches, true}, PlanMode::kPacked, variables);
  const std::vector<float> values = random_floats(42, 7);
  std::copy(values.begin(), values.end(), session.input<float>(x).begin());
  session.input<float>(rate)[0] = 1e-2f;
  session.run(3);
  return {session.output<float>(fetches.front())[0], variables.checksum(parameters)};
}

TEST(Fuse, ALayerOfManyMatricesAndAStoredTransposeBecomesDenseWithTheSameBits) {
  const auto loss_and_weights = [](bool fused) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {2, 3, 7}});
    const Value w = graph.variable("w", {DType::kF32, {5, 7}}, glorot_uniform({5, 7}, 3));
    const Value b = graph.variable("b", {DType::kF32, {5}}, constant_of(0.25f));
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value y = relu(add(b, matmul(x, w, {false, true})));
    const Value loss = mean(mul(y, y));
    const std::vector<Value> parameters = {w, b};
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    if (fused) {
      EXPECT_EQ(fuse(graph, std::vector<Value>{loss}), 1);
      EXPECT_EQ(count_of<Dense>(graph), 1);
    }
    return after_three_steps(graph, {loss}, x, rate, parameters);
  };
  EXPECT_EQ(loss_and_weights(true), loss_and_weights(false));
}

// Two blocks of a residual net: the first also has a norm on its other branch.
struct ResidualNet {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {6, 7}});
  Value labels = graph.input("labels", {DType::kI32, {6}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  std::vector<Value> parameters;
  Value loss;

  ResidualNet() {
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value inner = relu(norm(x));
    const Value first = relu(add(norm(inner), norm(x)));
    loss = mean(cross_entropy(relu(add(first, norm(relu(norm(first))))), labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  // A product, normalized.
  Value norm(Value from) {
    const NameScope scope(graph, "norm_" + std::to_string(parameters.size()));
    const Shape shape = {from.shape()[1], 5};
    parameters.push_back(graph.variable("w", {DType::kF32, shape}, glorot_uniform(shape, parameters.size())));
    const BatchNormState state = batch_norm_state(graph, 5);
    const Value y = batch_norm_training(matmul(from, parameters.back()), state);
    parameters.insert(parameters.end(), {state.gamma, state.beta});
    return y;
  }
  uint64_t weights_after_three_steps(PlanMode mode) {
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{loss}, true}, mode, variables);
    const std::vector<float> values = random_floats(42, 7);
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    for (int i = 0; i < 6; ++i) session.input<int32_t>(labels)[static_cast<size_t>(i)] = i % 5;
    session.input<float>(rate)[0] = 1e-2f;
    session.run(3);
    return variables.checksum(parameters);
  }
};

TEST(Fuse, BatchNormsTakeTheResidualAndTheReluBehindThemWithTheSameBits) {
  for (PlanMode mode : kPlanModes) {
    ResidualNet apart, fused;
    EXPECT_EQ(fuse(fused.graph), 4);
    EXPECT_EQ(count_of<BatchNormStatistics>(fused.graph), 5);
    EXPECT_EQ(count_of<BatchNormApply>(fused.graph), 5);
    EXPECT_EQ(count_of<MovingAverageUpdate>(fused.graph), 1);
    EXPECT_EQ(count_of<BatchNormGrad>(fused.graph), 5);
    const auto adds_branches = [](const Node& node) {
      return std::holds_alternative<BatchNormGrad>(node.op) && node.inputs.size() == 7;
    };
    EXPECT_EQ(std::count_if(fused.graph.nodes().begin(), fused.graph.nodes().end(), adds_branches), 1);
    EXPECT_EQ(count_of<UnaryGrad>(fused.graph), 0);
    EXPECT_EQ(count_of<Unary>(fused.graph), 0);
    EXPECT_EQ(fused.weights_after_three_steps(mode), apart.weights_after_three_steps(mode))
        << to_string(mode);
  }
}

// Two bottlenecks of a residual net: convolutions of single pixels that end in norms. The first also has one
// on its other branch.
struct BottleneckNet {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {2, 5, 5, 4}});
  std::vector<Value> parameters, expanded;  // results of the wide convolutions
  Value loss;

  BottleneckNet() {
    const Value stem = relu(norm(x, 4));
    const Value first = relu(add(norm(relu(norm(stem, 3)), 8), norm(stem, 8)));
    const Value second = relu(add(first, norm(relu(norm(first, 3)), 8)));
    loss = mean(mul(second, second));
  }
  // A convolution of single pixels, normalized.
  Value norm(Value from, int64_t channels) {
    const NameScope scope(graph, "norm_" + std::to_string(parameters.size()));
    const Shape shape = {1, 1, from.shape().last(), channels};
    parameters.push_back(graph.variable("w", {DType::kF32, shape}, glorot_uniform(shape, parameters.size())));
    const Value z = conv2d(from, parameters.back());
    if (channels == 8) expanded.push_back(z);
    const BatchNormState state = batch_norm_state(graph, channels);
    parameters.insert(parameters.end(), {state.gamma, state.beta});
    return batch_norm_training(z, state);
  }
  // Returns the gradients of all parameters in sequence, of the original or the fused graph.
  std::vector<float> gradients_of_parameters(bool fused) {
    const std::vector<Value> fetches = gradients(loss, parameters);
    if (fused) fuse(graph, fetches, Precision::kBf16);
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {fetches, true}, PlanMode::kPacked, variables);
    const std::vector<float> values = random_floats(x.shape().elements(), 7);
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    session.run(1);
    std::vector<float> all;
    for (const Value& gradient : fetches) {
      const auto of_one = session.output<float>(gradient);
      all.insert(all.end(), of_one.begin(), of_one.end());
    }
    return all;
  }
};

TEST(Fuse, TheGradientPastAnExpandingConvolutionAndItsNormDoesNotReadWhatIsBetween) {
  BottleneckNet apart, fused;
  const std::vector<float> expected = apart.gradients_of_parameters(false);
  const std::vector<float> got = fused.gradients_of_parameters(true);
  EXPECT_EQ(count_of<ConvNormGrad>(fused.graph), 3);
  EXPECT_EQ(count_of<BranchGrad>(fused.graph), 2);
  for (const Value& z : fused.expanded) {
    for (const Node& node : fused.graph.nodes()) {
      const bool reads = std::find(node.inputs.begin(), node.inputs.end(), z.id) != node.inputs.end();
      const bool is_forward = std::holds_alternative<BatchNormStatistics>(node.op) ||
                              std::holds_alternative<BatchNormApply>(node.op);
      EXPECT_TRUE(!reads || is_forward) << node.name;
    }
  }
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-4 * std::max(1.0f, std::abs(expected[i]))) << i;
}

TEST(Fuse, WhatIsBetweenANormAndItsConvolutionStaysWhereItIsFetched) {
  BottleneckNet net;
  gradients(net.loss, net.parameters);
  std::vector<Value> fetches = {net.loss};
  for (const Node& node : net.graph.nodes()) {
    if (std::holds_alternative<BatchNormGrad>(node.op)) fetches.push_back({&net.graph, node.outputs[0]});
  }
  fuse(net.graph, fetches, Precision::kBf16);
  EXPECT_EQ(count_of<ConvNormGrad>(net.graph), 0);
}

// Tensor cores cut f32 off, by which its products are biased.
TEST(Fuse, GradientsInF32ReadWhatIsBetweenANormAndItsConvolution) {
  BottleneckNet net;
  const std::vector<Value> fetches = gradients(net.loss, net.parameters);
  fuse(net.graph, fetches);
  EXPECT_EQ(count_of<ConvNormGrad>(net.graph), 0);
}

TEST(Fuse, TheGradientOfALayerNormAddsTheOnePastItWithTheSameBits) {
  const auto weights = [](bool is_fetched, bool fused) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {6, 7}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value w = graph.variable("w", {DType::kF32, {7, 7}}, glorot_uniform({7, 7}, 1));
    const Value gamma = graph.variable("gamma", {DType::kF32, {7}}, constant_of(1.5f));
    const Value beta = graph.variable("beta", {DType::kF32, {7}}, zeros());
    const Value hidden = matmul(x, w);
    const Value y = add(hidden, gelu(layer_norm(hidden, gamma, beta)));
    const Value loss = mean(mul(y, y));
    const std::vector<Value> parameters = {w, gamma, beta};
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    std::vector<Value> fetches = {loss};
    for (const Node& node : graph.nodes()) {  // somebody else wants the norm's own gradient
      if (is_fetched && std::holds_alternative<LayerNormGrad>(node.op))
        fetches.push_back({&graph, node.outputs[0]});
    }
    if (fused) {
      fuse(graph, fetches);
      for (const Node& node : graph.nodes()) {
        if (std::holds_alternative<LayerNormGrad>(node.op)) {
          EXPECT_EQ(node.inputs.size(), is_fetched ? 5u : 6u);
        }
      }
    }
    return after_three_steps(graph, fetches, x, rate, parameters);
  };
  for (const bool is_fetched : {false, true})
    EXPECT_EQ(weights(is_fetched, true), weights(is_fetched, false)) << is_fetched;
}

TEST(Fuse, TheGradientOfAMaxPoolAddsTheOnePastItWithTheSameBits) {
  const auto weights = [](bool fused) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {6, 7}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value w = graph.variable("w", {DType::kF32, {7, 48}}, glorot_uniform({7, 48}, 1));
    const Value kept = reshape(matmul(x, w), {6, 4, 4, 3}), pooled = max_pool(kept);
    const Value loss = add(mean(mul(kept, kept)), mean(mul(pooled, pooled)));
    const std::vector<Value> parameters = {w}, fetches = {loss};
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    if (fused) {
      fuse(graph, fetches);
      EXPECT_EQ(count_of<MaxPoolGrad>(graph), 1);
      for (const Node& node : graph.nodes()) {
        if (std::holds_alternative<MaxPoolGrad>(node.op)) {
          EXPECT_EQ(node.inputs.size(), 3u);
        }
      }
    }
    return after_three_steps(graph, fetches, x, rate, parameters);
  };
  EXPECT_EQ(weights(true), weights(false));
}

TEST(Fuse, MovingAveragesOfOneMomentumAreOneNodeUnlessOneIsUpdatedTwice) {
  for (const bool twice : {false, true}) {
    Graph graph;
    const Value one = fill(graph, 1, {3});
    std::vector<Value> averages;
    for (int i = 0; i < 4; ++i)
      averages.push_back(graph.variable("average_" + std::to_string(i), {DType::kF32, {3}}, zeros()));
    const auto update = [&](size_t i, float momentum) {
      graph.add(MovingAverageUpdate{momentum}, std::vector<Value>{averages[i], one});
    };
    update(0, 0.5f);
    update(1, 0.5f);
    update(2, 0.9f);
    update(3, 0.5f);
    if (twice) update(0, 0.5f);
    fuse(graph);
    EXPECT_EQ(count_of<MovingAverageUpdate>(graph), twice ? 5 : 2);
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{}, true}, PlanMode::kPacked, variables);
    session.run(1);
    for (size_t i = 0; i < 4; ++i) {
      float average = 0;
      std::memcpy(&average, variables.read(averages[i]).data(), sizeof average);
      EXPECT_FLOAT_EQ(average, i == 2 ? 0.1f : i == 0 && twice ? 0.75f : 0.5f) << i;
    }
  }
}

TEST(Fuse, ABatchNormStaysApartWhereItsResultIsFetchedOrReadByOthers) {
  for (const bool fetched : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {6, 5}});
    const Value y = batch_norm_training(x, batch_norm_state(graph, 5));
    relu(y);
    if (!fetched) sum(y);
    EXPECT_EQ(fuse(graph, fetched ? std::vector<Value>{y} : std::vector<Value>()), 0);
  }
}

TEST(Fuse, GradientsOfSlicesBecomeOneExpression) {
  for (const bool whole : {true, false}) {
    Graph graph;
    const Value w = graph.variable("w", {DType::kF32, {4, 9}}, constant_of(2));
    std::vector<Value> parts;
    for (int64_t i = 0; i < 3; ++i)
      parts.push_back(slice(w, Slice{{0, 3 * i}, {4, whole || i < 2 ? int64_t{3} : int64_t{2}}}));
    const Value loss = add(add(sum(mul(parts[0], parts[0])), sum(parts[1])), sum(parts[2]));
    const Value gradient = gradients(loss, std::vector<Value>{w})[0];
    fuse(graph, std::vector<Value>{gradient, loss});
    EXPECT_EQ(count_of<SliceGrad>(graph) + count_of<Binary>(graph), 2) << "the sums of the loss";
    CpuHarness cpu;
    Variables variables(graph, cpu.device, *cpu.allocator);
    Session session(graph, {{gradient}, false}, PlanMode::kPacked, variables);
    session.run(1);
    const auto found = session.output<float>(gradient);
    for (size_t i = 0; i < 36; ++i) {
      const size_t column = i % 9;
      const float from_sums = column < 8 || whole ? 1 : 0;
      EXPECT_EQ(found[i], column < 3 ? 4 : from_sums) << i;
    }
  }
}

// y = x w + v, whose gradients are sums of products by weights.
TEST(Fuse, AProductAddsTheResidualAfterItWithTheSameBits) {
  const auto loss_and_weights = [](bool fused) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {2, 3, 7}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> parameters;
    for (uint64_t i = 0; i < 4; ++i)
      parameters.push_back(
          graph.variable("w" + std::to_string(i), {DType::kF32, {7, 7}}, glorot_uniform({7, 7}, i)));
    const Value a = matmul(x, parameters[0]);
    const Value y = add(add(matmul(a, parameters[1]), matmul(a, parameters[2])), matmul(a, parameters[3]));
    const Value loss = mean(mul(y, y));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    // Two sums of products forward, two of the gradients of a.
    if (fused) {
      EXPECT_EQ(fuse(graph, std::vector<Value>{loss}), 4);
    }
    return after_three_steps(graph, {loss}, x, rate, parameters);
  };
  EXPECT_EQ(loss_and_weights(true), loss_and_weights(false));
}

// y = x + layer(x), y = relu(layer(x) + x), the sum of two layers, which one of them takes, and x + layer(x)
// where the layer's rows have one axis.
TEST(Fuse, ADenseLayerAddsTheResidualBehindItWithTheSameBits) {
  const auto loss_and_weights = [](int form, bool fused) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {2, 3, 7}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> parameters;
    const auto layer = [&](Value from) {
      const std::string name = "layer_" + std::to_string(parameters.size());
      parameters.push_back(
          graph.variable(name, {DType::kF32, {7, 7}}, glorot_uniform({7, 7}, parameters.size())));
      parameters.push_back(graph.variable(name + "/bias", {DType::kF32, {7}}, constant_of(0.25f)));
      return add(matmul(from, *(parameters.end() - 2)), parameters.back());
    };
    const Value y = form == 0   ? add(x, layer(x))
                    : form == 1 ? relu(add(layer(x), x))
                    : form == 2 ? add(layer(x), layer(x))
                                : add(x, reshape(layer(reshape(x, {6, 7})), {2, 3, 7}));
    const Value loss = mean(mul(y, y));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    if (fused) {
      EXPECT_EQ(fuse(graph, std::vector<Value>{loss}), form == 2 ? 2 : 1);
      int residuals = 0;
      for (const Node& node : graph.nodes()) {
        residuals += std::holds_alternative<Dense>(node.op) && node.inputs.size() == 4 ? 1 : 0;
      }
      EXPECT_EQ(residuals, 1) << form;
      EXPECT_EQ(count_of<Unary>(graph), 0);
    }
    return after_three_steps(graph, {loss}, x, rate, parameters);
  };
  for (const int form : {0, 1, 2, 3})
    EXPECT_EQ(loss_and_weights(form, true), loss_and_weights(form, false)) << form;
}

TEST(Fuse, ADenseLayerStaysApartWhereItsProductIsFetchedOrItsWeightsChangeInBetween) {
  const auto layer = [](Graph& graph, bool changes, bool fetched) {
    const Value x = graph.input("x", {DType::kF32, {2, 3}});
    const Value w = graph.variable("w", {DType::kF32, {3, 4}}, zeros());
    const Value b = graph.variable("b", {DType::kF32, {4}}, zeros());
    const Value product = matmul(x, w);
    if (changes) graph.add(MovingAverageUpdate{}, std::vector<Value>{w, fill(graph, 1, {3, 4})});
    bias(product, b);
    return fuse(graph, fetched ? std::vector<Value>{product} : std::vector<Value>{});
  };
  Graph plain, changed, kept;
  EXPECT_EQ(layer(plain, false, false), 1);
  EXPECT_EQ(layer(changed, true, false), 0);
  EXPECT_EQ(layer(kept, false, true), 0);
}

TEST(Fuse, ConstantsBecomeFillsOfTheirFinalValue) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {2, 3}});
  const Value y = add(x, broadcast_to(reshape(scale(fill(graph, 3, {}), 0.5f), {1, 1}), {2, 3}));
  fuse(graph);
  EXPECT_EQ(count_of<Scale>(graph) + count_of<BroadcastTo>(graph) + count_of<Reshape>(graph), 0);
  CpuHarness cpu;
  Variables variables(graph, cpu.device, *cpu.allocator);
  Session session(graph, {{y}, false}, PlanMode::kPacked, variables);
  std::fill_n(session.input<float>(x).begin(), 6, 1.0f);
  session.run();
  EXPECT_EQ(fetch<float>(session, y), std::vector<float>(6, 2.5f));
}

}  // namespace
}  // namespace headroom
