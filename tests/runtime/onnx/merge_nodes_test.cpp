// Nodes of a file that become one of ours.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/graph/fuse.h"
#include "runtime/onnx/import_model.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

// x -> gelu by tanh, as PyTorch's exporter writes transformers' NewGELU, with `cube` before x^3.
ModelBytes gelu_net(float cube, const std::string& second_output = "") {
  ModelBytes net;
  net.input("x", 1, {"batch", "7"}).output("y");
  if (!second_output.empty()) net.output(second_output);
  net.floats("w", {7, 7}, wave(49)).node("MatMul", {"x", "w"}, {"m"});
  net.floats("half", {}, {0.5f}).floats("one", {}, {1}).floats("three", {}, {3}).floats("cube", {}, {cube});
  net.floats("root", {}, {0.7978846f});
  net.node("Pow", {"m", "three"}, {"p"}).node("Mul", {"cube", "p"}, {"c"}).node("Add", {"m", "c"}, {"a"});
  net.node("Mul", {"a", "root"}, {"r"}).node("Tanh", {"r"}, {"t"}).node("Add", {"t", "one"}, {"o"});
  net.node("Mul", {"m", "half"}, {"h"}).node("Mul", {"h", "o"}, {"y"});
  return net;
}

std::vector<std::string> ops_of(const ModelBytes& net) {
  Graph graph;
  onnx::import_model(model_of(net.bytes()), {.batch = 2}, graph);
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(op_name(node.op));
  return names;
}

TEST(MergedNodes, ASoftmaxTakesTheMaskAndTheScalesBeforeIt) {
  ModelBytes net;
  net.input("x", 1, {"batch", "5", "6"}).output("y");
  net.floats("w", {6, 6}, wave(36))
      .floats("half", {}, {0.5f})
      .floats("one", {}, {1})
      .floats("mask", {1, 5}, wave(5));
  net.node("MatMul", {"x", "w"}, {"q"}).node("Mul", {"q", "half"}, {"a"}).node("Mul", {"a", "one"}, {"a1"});
  net.node("Mul", {"x", "half"}, {"b"});
  net.node("Transpose", {"b"}, {"t"}, {ints_attribute("perm", {0, 2, 1})});
  net.node("MatMul", {"a1", "t"}, {"s"}).node("Add", {"s", "mask"}, {"m"}).node("Softmax", {"m"}, {"y"});
  const std::vector<std::string> ops = ops_of(net);
  for (const char* merged : {"scale", "add"})
    EXPECT_EQ(std::count(ops.begin(), ops.end(), merged), 0) << merged;
  Graph graph;
  onnx::import_model(model_of(net.bytes()), {.batch = 2}, graph);
  for (const Node& node : graph.nodes()) {
    if (const auto* softmax = std::get_if<Softmax>(&node.op)) {
      EXPECT_EQ(softmax->scale, 0.25f);
    }
  }
}

TEST(MergedNodes, NodesThatComputeGeluAreOneNode) {
  EXPECT_EQ(ops_of(gelu_net(0.044715f)), (std::vector<std::string>{"matmul", "tanh_gelu"}));
  ModelBytes exact;
  exact.input("x", 1, {"batch", "7"}).output("y").floats("root", {}, {1.4142135f}).floats("one", {}, {1});
  exact.floats("half", {}, {0.5f}).node("Div", {"x", "root"}, {"d"}).node("Erf", {"d"}, {"e"});
  exact.node("Add", {"e", "one"}, {"a"}).node("Mul", {"x", "a"}, {"m"}).node("Mul", {"m", "half"}, {"y"});
  EXPECT_EQ(ops_of(exact), std::vector<std::string>{"gelu"});
}

TEST(MergedNodes, NodesThatComputeSomethingElseThanGeluStay) {
  const auto stays = [](const std::vector<std::string>& ops) {
    return std::find(ops.begin(), ops.end(), "tanh") != ops.end();
  };
  EXPECT_TRUE(stays(ops_of(gelu_net(0.05f))));
  EXPECT_TRUE(stays(ops_of(gelu_net(0.044715f, "t")))) << "although its tanh is an output";
  EXPECT_TRUE(stays(ops_of(gelu_net(0.044715f, "h")))) << "although a part of it is an output";
}

// x -> the attention weights that PyTorch's exporters write, with `masked` where the softmax is NaN.
ModelBytes attention_net(float masked, const std::string& second_output = "") {
  ModelBytes net;
  net.input("x", 1, {"batch", "7"}).output("y");
  if (!second_output.empty()) net.output(second_output);
  net.integers("extents", {1, 7}).node("ConstantOfShape", {"extents"}, {"mask"});  // zeros
  net.floats("masked", {}, {masked})
      .node("Add", {"x", "mask"}, {"a"})
      .node("Softmax", {"a"}, {"s"}, {int_attribute("axis", -1)});
  net.node("IsNaN", {"s"}, {"n"}).node("Where", {"n", "masked", "s"}, {"y"});
  return net;
}

TEST(MergedNodes, AnAttentionsSoftmaxIsOneNodeAndAMaskOfZerosNone) {
  EXPECT_EQ(ops_of(attention_net(0)), std::vector<std::string>{"softmax"});
  EXPECT_EQ(ops_of(attention_net(1)), (std::vector<std::string>{"softmax", "not_equal", "where"}));
  EXPECT_EQ(ops_of(attention_net(0, "s")), (std::vector<std::string>{"softmax", "not_equal", "where"}));
}

// x (batch,5,8) -> two heads of 4, whose scores are masked, and classes. `mask` is added to the scores, which
// are an output if `shows_scores`. With `is_shared` both heads read one head of keys and values, and a soft
// cap is on the scores.
ModelBytes heads_net(const std::string& mask, bool shows_scores = false, bool is_shared = false) {
  ModelBytes net;
  net.input("x", 1, {"batch", "5", "8"}).output("y");
  if (shows_scores) net.output("masked");
  net.integers("extents", {5, 5}).integers("next", {1}).node("ConstantOfShape", {"extents"}, {"none"});
  net.floats("lowest", {}, {std::numeric_limits<float>::lowest()})
      .node("Add", {"none", "lowest"}, {"hidden"});
  net.node("Trilu", {"hidden", "next"}, {"causal"}, {int_attribute("upper", 1)});
  std::vector<float> written(25);
  for (size_t i = 0; i < 25; ++i) written[i] = i % 5 > i / 5 ? -std::numeric_limits<float>::infinity() : 0;
  net.floats("learned", {5, 5}, wave(25)).floats("written", {5, 5}, written);
  net.floats("half", {}, {0.5f}).integers("split", {0, 0, 2, 4}).integers("join", {0, 40});
  net.floats("one", {5, 5}, std::vector<float>(25, 1)).node("Mul", {"learned", "one"}, {"factor"});
  net.integers("one_head", {0, 0, 1, 4}).integers("apart", {0, 1, 1, 5, 4}).integers("both", {1, 1, 2, 1, 1});
  net.integers("together", {0, 2, 5, 4}).floats("three", {}, {3}).floats("third", {}, {1.0f / 3});
  for (const std::string head : {"q", "k", "v"}) {
    const bool is_one = is_shared && head != "q";
    const int64_t columns = is_one ? 4 : 8;
    net.floats(head + ".w", {8, columns}, wave(8 * columns, 0.3f + 0.1f * static_cast<float>(head[0] - 'k')));
    net.node("MatMul", {"x", head + ".w"}, {head + ".all"})
        .node("Reshape", {head + ".all", is_one ? "one_head" : "split"}, {head + ".s"});
    net.node("Transpose", {head + ".s"}, {is_one ? head + ".once" : head},
             {ints_attribute("perm", {0, 2, 1, 3})});
    if (!is_one) continue;
    net.node("Reshape", {head + ".once", "apart"}, {head + ".apart"});
    net.node("Expand", {head + ".apart", "both"}, {head + ".both"});
    net.node("Reshape", {head + ".both", "together"}, {head});
  }
  net.node("Transpose", {"k"}, {"kt"}, {ints_attribute("perm", {0, 1, 3, 2})});
  net.node("MatMul", {"q", "kt"}, {"scores"})
      .node("Mul", {"scores", "half"}, {is_shared ? "small" : "scaled"});
  if (is_shared) {
    net.node("Mul", {"small", "third"}, {"inner"}).node("Tanh", {"inner"}, {"bent"});
    net.node("Mul", {"bent", "three"}, {"scaled"});
  }
  net.node("Add", {"scaled", mask}, {"masked"}).node("Softmax", {"masked"}, {"p"});
  net.node("MatMul", {"p", "v"}, {"o"})
      .node("Transpose", {"o"}, {"t"}, {ints_attribute("perm", {0, 2, 1, 3})});
  net.floats("head.w", {40, 3}, wave(120)).node("Reshape", {"t", "join"}, {"flat"});
  net.node("MatMul", {"flat", "head.w"}, {"y"});
  return net;
}

TEST(MergedNodes, HeadsOfAttentionAreOneNodeThatKeepsNoScores) {
  for (const char* mask : {"causal", "written", "none"}) {
    Graph graph;
    const onnx::ImportedModel model =
        import_model(model_of(heads_net(mask).bytes()), {.batch = 2, .stores_half = true}, graph);
    for (const onnx::BoundTensor& parameter : model.parameters) EXPECT_NE(parameter.name, "written");
    EXPECT_EQ(count_of(graph, "attention"), 1) << mask;
    for (const char* merged : {"softmax", "transpose", "scale", "add"}) EXPECT_EQ(count_of(graph, merged), 0);
  }
}

TEST(MergedNodes, AttentionReadsSharedKeysWhereTheyAreAndCapsItsScores) {
  Graph graph;
  import_model(model_of(heads_net("causal", false, true).bytes()), {.batch = 2, .stores_half = true}, graph);
  fuse(graph, {});
  for (const char* merged : {"softmax", "transpose", "scale", "add", "tanh", "broadcast_to"})
    EXPECT_EQ(count_of(graph, merged), 0) << merged;
  for (const Node& node : graph.nodes()) {
    const auto* attention = std::get_if<Attention>(&node.op);
    if (attention == nullptr) continue;
    EXPECT_FLOAT_EQ(attention->softcap, 3);
    EXPECT_FLOAT_EQ(attention->scale, 0.5f);
    EXPECT_EQ(graph.value(node.inputs[1]).spec.shape, (Shape{2, 5, 1, 4}));
  }
  EXPECT_EQ(count_of(graph, "attention"), 1);
}

TEST(MergedNodes, AttentionOfRankThreeStaysAsItIs) {
  ModelBytes net;
  net.input("x", 1, {"batch", "5", "8"}).output("y");
  net.node("Transpose", {"x"}, {"t"}, {ints_attribute("perm", {0, 2, 1})});
  net.node("MatMul", {"x", "t"}, {"scores"})
      .node("Softmax", {"scores"}, {"p"})
      .node("MatMul", {"p", "x"}, {"y"});
  Graph graph;
  import_model(model_of(net.bytes()), {.batch = 2, .stores_half = true}, graph);
  EXPECT_EQ(count_of(graph, "attention"), 0);
  EXPECT_EQ(count_of(graph, "softmax"), 1);
}

TEST(MergedNodes, ScoresThatSomebodyReadsAndMasksThatLearnStay) {
  for (const ModelBytes& net : {heads_net("factor"), heads_net("causal", true)}) {
    Graph graph;
    import_model(model_of(net.bytes()), {.batch = 2, .stores_half = true}, graph);
    EXPECT_EQ(count_of(graph, "attention"), 0);
    EXPECT_EQ(count_of(graph, "softmax"), 1);
  }
}

class MergedAttention : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SharedKeys, MergedAttention, testing::Bool());

TEST_P(MergedAttention, LearnsTheSame) {
  const auto model = model_of(heads_net("causal", false, GetParam()).bytes());
  const auto losses = [&](bool merges, Precision precision) {
    onnx::ModelStepSettings settings{.import = {.batch = 3, .stores_half = merges}, .optimizer = "sgd"};
    settings.precision = precision;
    settings.fused = merges;
    const auto step = make_model_step(model, settings);
    EXPECT_EQ(count_of(step->graph, "attention_grad"), merges ? 1 : 0);
    return losses_of(*step, {.device = "sim"}, 8);
  };
  const std::vector<float> apart = losses(false, Precision::kF32), merged = losses(true, Precision::kF32),
                           halves = losses(true, Precision::kBf16);
  EXPECT_LT(apart.back(), apart.front());
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_NEAR(merged[i], apart[i], 1e-5f * std::abs(apart[i]));
    EXPECT_NEAR(halves[i], apart[i], 2e-2f * std::abs(apart[i]));
  }
}

// Builds the same heads by one product, whose columns are split like GPT-2's or, with `by_axes`, like those
// of timm's nets.
ModelBytes packed_heads_net(bool by_axes, int64_t first = 0) {
  ModelBytes net;
  net.input("x", 1, {"batch", "5", "8"}).output("y");
  net.floats("w", {8, 24}, wave(192)).node("MatMul", {"x", "w"}, {"all"});
  net.floats("half", {}, {0.5f}).integers("split", {0, 0, 2, 4}).integers("join", {0, 40});
  net.integers("axes", {0, 0, 3, 2, 4}).integers("first", {0}).integers("last", {2});
  const std::string parts[] = {"q", "k", "v"};
  if (by_axes) {
    net.node("Reshape", {"all", "axes"}, {"apart"});
    net.node("Transpose", {"apart"}, {"moved"}, {ints_attribute("perm", {2, 0, 3, 1, 4})});
  }
  for (int64_t i = 0; i < 3; ++i) {
    const std::string& part = parts[(i + first) % 3];
    const int64_t extent = by_axes ? 1 : 8;
    net.integers("from_" + part, {extent * i}).integers("to_" + part, {extent * (i + 1)});
    if (by_axes) {
      net.node("Slice", {"moved", "from_" + part, "to_" + part, "first"}, {part + ".s"});
      net.node("Squeeze", {part + ".s", "first"}, {part});
    } else {
      net.node("Slice", {"all", "from_" + part, "to_" + part, "last"}, {part + ".s"});
      net.node("Reshape", {part + ".s", "split"}, {part + ".r"});
      net.node("Transpose", {part + ".r"}, {part}, {ints_attribute("perm", {0, 2, 1, 3})});
    }
  }
  net.node("Transpose", {"k"}, {"kt"}, {ints_attribute("perm", {0, 1, 3, 2})});
  net.node("MatMul", {"q", "kt"}, {"scores"}).node("Mul", {"scores", "half"}, {"scaled"});
  net.node("Softmax", {"scaled"}, {"p"}).node("MatMul", {"p", "v"}, {"o"});
  net.node("Transpose", {"o"}, {"t"}, {ints_attribute("perm", {0, 2, 1, 3})});
  net.floats("head.w", {40, 3}, wave(120)).node("Reshape", {"t", "join"}, {"flat"});
  net.node("MatMul", {"flat", "head.w"}, {"y"});
  return net;
}

TEST(MergedNodes, HeadsOfOneProductAreReadWhereTheyLieAndLearnTheSame) {
  for (const bool by_axes : {false, true}) {
    for (const int64_t first : {0, 1}) {  // queries first, or keys
      const auto model = model_of(packed_heads_net(by_axes, first).bytes());
      const auto losses = [&](bool merges) {
        onnx::ModelStepSettings settings{.import = {.batch = 3, .stores_half = merges}, .optimizer = "sgd"};
        settings.fused = merges;
        const auto step = make_model_step(model, settings);
        const bool is_packed = merges && first == 0;
        EXPECT_EQ(count_of(step->graph, "attention"), merges ? 1 : 0);
        EXPECT_EQ(count_of(step->graph, "slice") == 0, is_packed);
        const auto moves = count_of(step->graph, "concat") + count_of(step->graph, "slice_grad");
        EXPECT_EQ(moves == 0, merges);
        return losses_of(*step, {.device = "sim"}, 8);
      };
      const std::vector<float> apart = losses(false), merged = losses(true);
      EXPECT_NE(apart.back(), apart.front());
      for (size_t i = 0; i < apart.size(); ++i) EXPECT_NEAR(merged[i], apart[i], 1e-5f * std::abs(apart[i]));
    }
  }
}

// x (batch,3,height,width) -> Conv -> GlobalAveragePool, Flatten -> y (batch,8)
ModelBytes strided_net(const std::vector<int64_t>& extents, const std::vector<int64_t>& kernel,
                       const std::vector<int64_t>& strides, const std::vector<int64_t>& pads) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3", std::to_string(extents[0]), std::to_string(extents[1])}).output("y");
  net.floats("w", {8, 3, kernel[0], kernel[1]}, wave(24 * kernel[0] * kernel[1]));
  net.node("Conv", {"x", "w"}, {"c"}, {ints_attribute("strides", strides), ints_attribute("pads", pads)});
  net.node("Relu", {"c"}, {"r"}).node("GlobalAveragePool", {"r"}, {"p"}).node("Flatten", {"p"}, {"y"});
  return net;
}

TEST(MergedNodes, AStridedConvolutionOfFewChannelsLearnsTheSameByBlocksOfPixels) {
  struct Case {
    std::vector<int64_t> extents, kernel, strides, pads;
    bool in_blocks;
  };
  const Case cases[] = {{{14, 10}, {7, 7}, {2, 2}, {3, 3, 3, 3}, true},  // ResNet's first
                        {{8, 12}, {4, 4}, {4, 4}, {0, 0, 0, 0}, true},   // patches
                        {{9, 9}, {3, 3}, {2, 2}, {0, 0, 1, 1}, true},    // TensorFlow's padding
                        {{6, 11}, {2, 3}, {1, 3}, {0, 1, 0, 0}, true},   // another stride across
                        {{9, 9}, {4, 4}, {4, 4}, {0, 0, 0, 0}, false},   // pixels in no window
                        {{8, 8}, {1, 1}, {2, 2}, {0, 0, 0, 0}, false},   // pixels between windows
                        {{8, 8}, {3, 3}, {1, 1}, {1, 1, 1, 1}, false}};  // no stride
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.kernel) + " over " + testing::PrintToString(c.extents));
    const auto model = model_of(strided_net(c.extents, c.kernel, c.strides, c.pads).bytes());
    const auto losses = [&](bool stores_half) {
      onnx::ModelStepSettings settings{
          .import = {.batch = 3, .stores_half = stores_half}, .optimizer = "sgd", .fused = false};
      const auto step = make_model_step(model, settings);
      EXPECT_EQ(count_of(step->graph, "transpose") > 0, stores_half && c.in_blocks);
      return losses_of(*step, {.device = "cpu"}, 4);
    };
    const std::vector<float> plain = losses(false), blocks = losses(true);
    EXPECT_NE(plain.back(), plain.front());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(blocks[i], plain[i], 1e-5f * std::abs(plain[i]));
  }
}

}  // namespace
}  // namespace headroom::test
