#include "runtime/onnx/import_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/errors.h"
#include "base/half.h"
#include "runtime/app/runtime.h"
#include "runtime/onnx/model_step.h"
#include "runtime/onnx/op_table.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

// x (batch,3,6,6) -> Conv, BatchNormalization, Relu, GlobalAveragePool, Flatten, Gemm -> y (batch,4)
ModelBytes image_net() {
  ModelBytes net;
  net.input("x", 1, {"batch", "3", "6", "6"}).output("y");
  net.floats("conv.weight", {5, 3, 3, 3}, wave(135)).floats("norm.weight", {5}, {1, 1, 1, 1, 1});
  net.floats("norm.bias", {5}, wave(5))
      .floats("norm.mean", {5}, {0, 0, 0, 0, 0})
      .floats("norm.var", {5}, {1, 1, 1, 1, 1});
  net.floats("fc.weight", {4, 5}, wave(20)).floats("fc.bias", {4}, wave(4));
  net.node("Conv", {"x", "conv.weight"}, {"c"}, {ints_attribute("pads", {1, 1, 1, 1})});
  net.node("BatchNormalization", {"c", "norm.weight", "norm.bias", "norm.mean", "norm.var"}, {"n"});
  net.node("Relu", {"n"}, {"r"}).node("GlobalAveragePool", {"r"}, {"p"}).node("Flatten", {"p"}, {"f"});
  net.node("Gemm", {"f", "fc.weight", "fc.bias"}, {"y"}, {int_attribute("transB", 1)});
  return net;
}

TEST(ImportModel, BindsFreeAxes) {
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(image_net().bytes()), {.batch = 7}, graph);
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].shape, (Shape{7, 3, 6, 6}));
  EXPECT_EQ(model.outputs[0].shape, (Shape{7, 4}));
  EXPECT_EQ(refusal_of(image_net().bytes(), {}), "net.onnx: has free axes; bind them by --dim batch=N");
  EXPECT_EQ(refusal_of(image_net().bytes(), {.dims = {{"batch", 3}}}), "");
  EXPECT_NE(
      refusal_of(image_net().bytes(), {.batch = 2, .dims = {{"length", 3}}}).find("no input has a free axis"),
      std::string::npos);
  ModelBytes fixed;
  fixed.input("x", 1, {"2", "3"}).output("y").node("Relu", {"x"}, {"y"});
  EXPECT_NE(refusal_of(fixed.bytes(), {.batch = 8}).find("its batch was fixed at 2"), std::string::npos);
  EXPECT_EQ(refusal_of(fixed.bytes(), {.batch = 2}), "");
}

TEST(ImportModel, TellsEveryUnsupportedNodeAtOnce) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y");
  net.node("Det", {"x"}, {"a"}, {}, {{"pkg.torch.onnx.stack_trace", "File \"net.py\", line 5, in forward"}});
  net.node("Relu", {"x"}, {"b"}).node("StringSplit", {"b"}, {"c"}).node("StringSplit", {"c"}, {"y"});
  const std::string why = refusal_of(net.bytes());
  EXPECT_NE(why.find("node a (Det), net.py:5"), std::string::npos) << why;
  EXPECT_NE(why.find("node c (StringSplit) (and 1 more)"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
}

TEST(ImportModel, TellsEveryNodeThatCannotBeComputedAtOnce) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).input("shape", 7, {"2"}).output("y");
  net.node("Reshape", {"x", "shape"}, {"a"}).node("Relu", {"a"}, {"b"});
  net.node("Concat", {"x", "x"}, {"c"}, {int_attribute("axis", 5)}).node("Add", {"b", "c"}, {"y"});
  const std::string why = refusal_of(net.bytes());
  EXPECT_NE(why.find("(Reshape): operand 1 (shape) depends on the data"), std::string::npos) << why;
  EXPECT_NE(why.find("(Concat): axis 5 is outside rank 2"), std::string::npos) << why;
}

TEST(ImportModel, ImagesStayWithTheirChannelsLast) {
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(image_net().bytes()), {.batch = 2}, graph);
  EXPECT_EQ(count_of(graph, "transpose"), 0);
  EXPECT_EQ(model.inputs[0].value.shape(), (Shape{2, 6, 6, 3}));
  EXPECT_EQ(model.parameters[0].value.shape(), (Shape{3, 3, 3, 5}));
}

TEST(ImportModel, AttentionTransposesOnlyWhatItMultiplies) {
  ModelBytes net;  // heads are split, multiplied and joined as exporters write it
  net.input("x", 1, {"batch", "4", "6"}).output("y").floats("w", {6, 6}, wave(36));
  net.integers("split", {0, 0, 2, 3}).integers("join", {0, 0, 6});
  net.node("MatMul", {"x", "w"}, {"q"}).node("Reshape", {"q", "split"}, {"s"});
  net.node("Transpose", {"s"}, {"h"}, {ints_attribute("perm", {0, 2, 1, 3})});
  net.node("Transpose", {"h"}, {"k"}, {ints_attribute("perm", {0, 1, 3, 2})});
  net.node("MatMul", {"h", "k"}, {"scores"})
      .node("Softmax", {"scores"}, {"p"})
      .node("MatMul", {"p", "h"}, {"o"});
  net.node("Transpose", {"o"}, {"t"}, {ints_attribute("perm", {0, 2, 1, 3})})
      .node("Reshape", {"t", "join"}, {"y"});
  Graph graph;
  import_model(model_of(net.bytes()), {.batch = 2}, graph);
  EXPECT_EQ(count_of(graph, "transpose"), 2);  // the heads once, and the output
}

TEST(ImportModel, FoldsShapes) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3", "4"})
      .output("y")
      .integers("one", {1})
      .integers("rest", {-1})
      .integers("zero", {0});
  net.node("Shape", {"x"}, {"s"}).node("Slice", {"s", "zero", "one"}, {"rows"});
  net.node("Concat", {"rows", "rest"}, {"shape"}, {int_attribute("axis", 0)})
      .node("Reshape", {"x", "shape"}, {"y"});
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net.bytes()), {.batch = 5}, graph);
  EXPECT_EQ(model.outputs[0].shape, (Shape{5, 12}));
  EXPECT_EQ(graph.nodes().size(), 1u);
}

// T5 takes the logarithms of distances to find their buckets, and masks that of 0.
TEST(ImportModel, InfiniteConstantsBecomeWholeNumbersThatAreComputedWith) {
  ModelBytes net;
  net.input("x", 1, {"batch", "2"}).output("y").floats("distances", {2}, {0, 4}).integers("eight", {8});
  net.node("Log", {"distances"}, {"logs"}).node("Cast", {"logs"}, {"whole"}, {int_attribute("to", 7)});
  net.node("Add", {"whole", "eight"}, {"far"}).node("Max", {"far", "eight"}, {"buckets"});
  net.node("Cast", {"buckets"}, {"shares"}, {int_attribute("to", 1)}).node("Add", {"x", "shares"}, {"y"});
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net.bytes()), {.batch = 1}, graph);
  EXPECT_EQ(model.outputs[0].shape, (Shape{1, 2}));
}

TEST(ImportModel, AConstantOfEqualNumbersMayHaveTheLongerAxes) {
  ModelBytes net;
  net.input("x", 1, {"3"}).output("y").output("z").integers("shape", {2, 3}).integers("wide", {2, 1});
  net.node("ConstantOfShape", {"shape"}, {"zeros"}).node("Max", {"zeros", "x"}, {"y"});
  net.node("Unsqueeze", {"x", "axis"}, {"row"}).integers("axis", {0});
  net.node("ConstantOfShape", {"wide"}, {"column"}).node("Max", {"row", "column"}, {"z"});
  const std::vector<float> both = {1, 0, 2, 1, 0, 2};
  EXPECT_EQ(answers_of(net.bytes(), {}, {{1, -1, 2}}), (std::vector{both, both}));
}

TEST(ImportModel, StatisticsAreNotTrained) {
  Graph graph;
  const onnx::ImportedModel model =
      import_model(model_of(image_net().bytes()), {.batch = 2, .is_training = true}, graph);
  EXPECT_EQ(model.parameters.size(), 5u);
  EXPECT_EQ(model.statistics.size(), 2u);
  EXPECT_EQ(count_of(graph, "batch_norm"), 1);
  EXPECT_EQ(count_of(graph, "moving_average_update"), 2);
}

TEST(ImportModel, WeightsThatAreNotThereAreDrawn) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"})
      .output("y")
      .external("w", {3, 4}, "elsewhere", 0, 48)
      .node("MatMul", {"x", "w"}, {"y"});
  const auto step = make_model_step(model_of(net.bytes()), {.import = {.batch = 2}});
  EXPECT_EQ(step->model.absent_bytes, 48);
  Runtime runtime({.device = "cpu"});
  const Variables variables(step->graph, runtime.device(), runtime.allocator());
  const std::vector<std::byte> drawn = variables.read(step->model.parameters[0].value);
  EXPECT_TRUE(std::any_of(drawn.begin(), drawn.end(), [](std::byte byte) { return byte != std::byte{0}; }));
}

TEST(ImportModel, OutputsOf16BitsHaveTheValuesOfTheirType) {
  constexpr int kFloat16 = 10, kBfloat16 = 16;
  const std::vector<float> x = {0.1f, 1.7f, -300, 1e-5f};
  for (const int type : {kFloat16, kBfloat16}) {
    ModelBytes net;
    net.input("x", type, {"4"}).output("y").node("Mul", {"x", "x"}, {"y"});
    const std::vector<float> y = answers_of(net.bytes(), {}, {x})[0];
    for (size_t i = 0; i < x.size(); ++i) {
      const float square = x[i] * x[i];
      EXPECT_EQ(y[i], type == kFloat16 ? float_of_f16(f16_of(square)) : float_of_bf16(bf16_of(square)));
    }
  }
}

TEST(ModelStep, LearnsTheSameOnEveryDeviceWithAndWithoutFusion) {
  const auto model = model_of(image_net().bytes());
  std::vector<std::vector<float>> all;
  for (const bool fused : {true, false}) {
    for (const char* device : {"cpu", "sim"}) {
      const auto step = make_model_step(model, {.import = {.batch = 4}, .optimizer = "sgd", .fused = fused});
      all.push_back(losses_of(*step, {.device = device}, 8));
      EXPECT_LT(all.back().back(), all.back().front());
    }
  }
  for (const std::vector<float>& losses : all) {
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], all[0][i], 1e-5f * std::abs(all[0][i]));
  }
}

TEST(ModelStep, ManyClassesArePaddedToWholeLinesWithTheSameLosses) {
  const auto step_of = [](bool hides_product) {
    ModelBytes net;
    net.input("x", 1, {"batch", "6"}).output("y");
    net.floats("w", {6, 1027}, wave(6 * 1027)).floats("b", {1027}, wave(1027, 0.25f));
    net.node("Gemm", {"x", "w", "b"}, {hides_product ? "g" : "y"});
    if (hides_product) net.node("Neg", {"g"}, {"n"}).node("Neg", {"n"}, {"y"});
    return make_model_step(model_of(net.bytes()), {.import = {.batch = 4}, .optimizer = "sgd"});
  };
  const auto padded = step_of(false), apart = step_of(true);
  EXPECT_EQ(count_of(padded->graph, "slice_grad"), 2);  // the weights and the bias
  EXPECT_EQ(count_of(apart->graph, "slice_grad"), 0);
  const std::vector<float> losses = losses_of(*padded, {.device = "cpu"}, 4);
  const std::vector<float> expected = losses_of(*apart, {.device = "cpu"}, 4);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5f * expected[i]);
}

TEST(ImportModel, EqualConstantsAreOneVariable) {
  ModelBytes net;
  net.input("x", 1, {"batch", "2"}).output("y").node("Shape", {"x"}, {"extents"});
  for (const char* mask : {"m1", "m2"}) net.node("Cast", {"extents"}, {mask}, {int_attribute("to", 1)});
  net.node("Mul", {"x", "m1"}, {"scaled"}).node("Add", {"scaled", "m2"}, {"y"});
  Graph graph;
  import_model(model_of(net.bytes()), {.batch = 3}, graph);
  EXPECT_EQ(std::ranges::count_if(
                graph.variables(),
                [&](int id) { return graph.value(id).name.find("constant_") != std::string::npos; }),
            1);
}

TEST(ModelInference, ManyClassesComeFromWeightsThatWerePaddedOnce) {
  const auto net_of = [](bool hides_product) {
    ModelBytes net;
    net.input("x", 1, {"batch", "6"}).output("y");
    net.floats("w", {6, 1027}, wave(6 * 1027)).floats("b", {1027}, wave(1027, 0.25f));
    net.node("Gemm", {"x", "w", "b"}, {hides_product ? "g" : "y"});
    if (hides_product) net.node("Neg", {"g"}, {"n"}).node("Neg", {"n"}, {"y"});
    return net.bytes();
  };
  const std::vector<std::vector<float>> x = {wave(24)};
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto inference =
        make_model_inference(model_of(net_of(false)), {.import = {.batch = 4}, .precision = precision});
    EXPECT_EQ(count_of(inference->graph, "slice_grad"), 0) << to_string(precision);
    EXPECT_EQ(count_of(inference->graph, "cast"), precision == Precision::kF32 ? 0 : 1) << "that of x";
    const std::vector<float> y = answers_of(net_of(false), {.batch = 4}, x, "cpu", precision)[0];
    const std::vector<float> expected = answers_of(net_of(true), {.batch = 4}, x, "cpu", precision)[0];
    ASSERT_EQ(y.size(), 4u * 1027);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-6f) << to_string(precision);
  }
}

TEST(ModelInference, OutputsThatShareAHeadShareItsPaddedWeights) {
  ModelBytes net;
  net.input("x", 1, {"batch", "6"}).output("y").output("z").floats("w", {6, 1027}, wave(6 * 1027));
  net.node("MatMul", {"x", "w"}, {"y"}).node("Neg", {"x"}, {"n"}).node("MatMul", {"n", "w"}, {"z"});
  const auto answers = answers_of(net.bytes(), {.batch = 2}, {wave(12)});
  for (size_t i = 0; i < answers[0].size(); ++i) EXPECT_EQ(answers[0][i], -answers[1][i]);
}

TEST(ModelStep, ClassesLieWhereTheLabelsSay) {
  ModelBytes net;
  net.input("x", 1, {"batch", "5", "6"})
      .output("y")
      .floats("w", {6, 7}, wave(42))
      .node("MatMul", {"x", "w"}, {"y"});
  const auto model = model_of(net.bytes());
  const auto classes = [&](std::optional<Shape> labels) {
    return make_model_step(model, {.import = {.batch = 4}, .label_shape = labels})->classes;
  };
  EXPECT_EQ(classes(Shape{4, 5}), 7);
  EXPECT_EQ(classes(Shape{4, 7}), 5);
  EXPECT_EQ(classes(std::nullopt), 7);
  EXPECT_THROW(classes(Shape{4, 6}), InvalidArgument);
  EXPECT_EQ(make_model_step(model, {.import = {.batch = 4}, .loss = LossKind::kMse})->labels.shape(),
            (Shape{4, 5, 7}));
}

// The tables of the docs are those of the program.
TEST(OpTable, IsInTheDocs) {
  std::ifstream file(HEADROOM_ONNX_FIXTURES "/../../../docs/models.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find(onnx::op_table_text()), std::string::npos) << "docs/models.md must hold\n"
                                                                 << onnx::op_table_text();
}

}  // namespace
}  // namespace headroom::test
