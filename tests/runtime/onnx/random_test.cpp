// Random ops of training exports: their distributions, and that the same numbers come again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/plan/split_batch.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

struct Moments {
  double mean, deviation, least, most;
};

Moments moments_of(const std::vector<float>& numbers) {
  const double mean =
      std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  double squares = 0;
  for (const float number : numbers)
    squares += (static_cast<double>(number) - mean) * (static_cast<double>(number) - mean);
  return {mean, std::sqrt(squares / static_cast<double>(numbers.size())),
          static_cast<double>(*std::min_element(numbers.begin(), numbers.end())),
          static_cast<double>(*std::max_element(numbers.begin(), numbers.end()))};
}

// x (100,200) -> what the op draws
std::vector<float> drawn(const std::string& op, const std::vector<std::string>& attributes, uint64_t seed = 1,
                         const std::string& device = "cpu") {
  ModelBytes net;
  net.input("x", 1, {"100", "200"}).output("y");
  const bool is_like = op.ends_with("Like") || op == "Bernoulli";
  net.node(op, is_like ? std::vector<std::string>{"x"} : std::vector<std::string>{}, {"y"}, attributes);
  return answers_of(net.bytes(), {.seed = seed}, {std::vector<float>(20000, 0.3f)}, device)[0];
}

TEST(RandomOps, HaveTheirDistributions) {
  for (const char* op : {"RandomUniform", "RandomUniformLike"}) {
    std::vector<std::string> attributes = {float_attribute("low", -1), float_attribute("high", 3)};
    if (std::string(op) == "RandomUniform") attributes.push_back(ints_attribute("shape", {100, 200}));
    const Moments m = moments_of(drawn(op, attributes));
    EXPECT_NEAR(m.mean, 1, 0.05);
    EXPECT_NEAR(m.deviation, 4 / std::sqrt(12), 0.05);
    EXPECT_GE(m.least, -1);
    EXPECT_LT(m.most, 3);
  }
  for (const char* op : {"RandomNormal", "RandomNormalLike"}) {
    std::vector<std::string> attributes = {float_attribute("mean", 2), float_attribute("scale", 0.5f)};
    if (std::string(op) == "RandomNormal") attributes.push_back(ints_attribute("shape", {100, 200}));
    const Moments m = moments_of(drawn(op, attributes));
    EXPECT_NEAR(m.mean, 2, 0.02);
    EXPECT_NEAR(m.deviation, 0.5, 0.02);
    EXPECT_GT(m.most, 2 + 3 * 0.5);  // one of 20,000 is that far
    EXPECT_LT(m.most, 2 + 6 * 0.5);
  }
  const Moments coins = moments_of(drawn("Bernoulli", {}));
  EXPECT_NEAR(coins.mean, 0.3, 0.02);
  EXPECT_EQ(coins.least, 0);
  EXPECT_EQ(coins.most, 1);
}

TEST(RandomOps, DrawTheSameForASeedOnEachDevice) {
  for (const char* op : {"RandomUniformLike", "RandomNormalLike", "Bernoulli"}) {
    EXPECT_EQ(drawn(op, {}), drawn(op, {})) << op;
    EXPECT_EQ(drawn(op, {}), drawn(op, {}, 1, "sim")) << op;
    EXPECT_NE(drawn(op, {}), drawn(op, {}, 2)) << op;
  }
}

// A net whose rows are dropped at random, as stochastic depth does it.
std::unique_ptr<onnx::ModelStep> stochastic_depth(int64_t batch) {
  ModelBytes net;
  net.input("x", 1, {"batch", "4"}).output("y").floats("w", {4, 4}, wave(16)).floats("keep", {1, 1}, {0.5f});
  net.integers("one", {1}).integers("zero", {0});
  net.node("MatMul", {"x", "w"}, {"h"})
      .node("Shape", {"x"}, {"s"})
      .node("Slice", {"s", "zero", "one"}, {"rows"});
  net.node("Concat", {"rows", "one"}, {"shape"}, {int_attribute("axis", 0)});
  net.node("Expand", {"keep", "shape"}, {"p"})
      .node("Bernoulli", {"p"}, {"mask"})
      .node("Mul", {"h", "mask"}, {"m"});
  net.node("Add", {"x", "m"}, {"y"});
  return make_model_step(model_of(net.bytes()), {.import = {.batch = batch}, .optimizer = "sgd"});
}

TEST(RandomOps, DrawOthersAtEachStepAndTheSameUnderEachPlan) {
  const auto step = stochastic_depth(4);
  const std::vector<float> losses = losses_of(*step, {.device = "cpu"}, 6);
  EXPECT_EQ(losses, losses_of(*step, {.device = "sim"}, 6));
  EXPECT_EQ(losses, losses_of(*stochastic_depth(4), {.device = "cpu"}, 6));
}

// Parts of a batch draw numbers of their own: the rows of one are not those of another.
TEST(RandomOps, PartsOfABatchDrawTheirOwn) {
  const auto whole = stochastic_depth(8), part = stochastic_depth(4);
  const Targets targets = whole->targets();
  split_batch(whole->graph, part->graph, 2, std::span(&targets, 1));
  std::vector<uint64_t> seeds;
  for (const Node& node : whole->graph.nodes()) {
    if (const auto* drawn = std::get_if<RandomUniform>(&node.op)) seeds.push_back(drawn->seed);
  }
  ASSERT_EQ(seeds.size(), 2u);
  EXPECT_NE(seeds[0], seeds[1]);
}

}  // namespace
}  // namespace headroom::test
