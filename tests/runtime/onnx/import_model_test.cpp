#include "runtime/onnx/import_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "runtime/app/runtime.h"
#include "runtime/base/errors.h"
#include "runtime/onnx/model_step.h"
#include "runtime/onnx/op_table.h"
#include "runtime/onnx/read_model.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"

namespace headroom::test {
namespace {

std::shared_ptr<const onnx::Model> model_of(const std::string& bytes) {
  // Tensors point into the bytes.
  static std::deque<std::string> kept;
  const std::string& text = kept.emplace_back(bytes);
  return std::make_shared<const onnx::Model>(
      onnx::parse_model(std::as_bytes(std::span(text.data(), text.size())), "net.onnx"));
}

std::vector<float> wave(int64_t count, float scale = 0.5f) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * std::sin(static_cast<float>(i) * 1.7f));
  return values;
}

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

int count_of(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [&](const Node& node) { return op_name(node.op) == op; }));
}

std::string import_refusal(const std::string& bytes, const onnx::ImportSettings& settings = {.batch = 2}) {
  Graph graph;
  try {
    import_model(model_of(bytes), settings, graph);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(ImportModel, BindsFreeAxes) {
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(image_net().bytes()), {.batch = 7}, graph);
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].shape, (Shape{7, 3, 6, 6}));
  EXPECT_EQ(model.outputs[0].shape, (Shape{7, 4}));
  EXPECT_EQ(import_refusal(image_net().bytes(), {}), "net.onnx: has free axes; bind them by --dim batch=N");
  EXPECT_EQ(import_refusal(image_net().bytes(), {.dims = {{"batch", 3}}}), "");
  EXPECT_NE(import_refusal(image_net().bytes(), {.batch = 2, .dims = {{"length", 3}}})
                .find("no input has a free axis"),
            std::string::npos);
  ModelBytes fixed;
  fixed.input("x", 1, {"2", "3"}).output("y").node("Relu", {"x"}, {"y"});
  EXPECT_NE(import_refusal(fixed.bytes(), {.batch = 8}).find("its batch was fixed at 2"), std::string::npos);
  EXPECT_EQ(import_refusal(fixed.bytes(), {.batch = 2}), "");
}

TEST(ImportModel, TellsEveryUnsupportedNodeAtOnce) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y");
  net.node("NonZero", {"x"}, {"a"}, {},
           {{"pkg.torch.onnx.stack_trace", "File \"net.py\", line 5, in forward"}});
  net.node("Relu", {"x"}, {"b"}).node("TopK", {"b", "b"}, {"c"}).node("TopK", {"b", "c"}, {"y"});
  const std::string why = import_refusal(net.bytes());
  EXPECT_NE(why.find("node a (NonZero), net.py:5"), std::string::npos) << why;
  EXPECT_NE(why.find("node c (TopK) (and 1 more)"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos);
}

TEST(ImportModel, TellsEveryNodeThatCannotBeComputedAtOnce) {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).input("shape", 7, {"2"}).output("y");
  net.node("Reshape", {"x", "shape"}, {"a"}).node("Relu", {"a"}, {"b"});
  net.node("Concat", {"x", "x"}, {"c"}, {int_attribute("axis", 5)}).node("Add", {"b", "c"}, {"y"});
  const std::string why = import_refusal(net.bytes());
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
  EXPECT_EQ(count_of(graph, "transpose"), 2);  // of the heads once, and of the output
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

TEST(ImportModel, TiedWeightsStayTied) {
  ModelBytes net;
  net.input("x", 7, {"batch", "3"}).output("y").floats("table", {5, 2}, wave(10));
  net.node("Gather", {"table", "x"}, {"e"})
      .node("Transpose", {"table"}, {"t"}, {ints_attribute("perm", {1, 0})});
  net.node("MatMul", {"e", "t"}, {"y"});
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net.bytes()), {.batch = 2}, graph);
  EXPECT_EQ(model.parameters.size(), 1u);
  EXPECT_EQ(count_of(graph, "transpose"), 0);
}

TEST(ImportModel, MergedVectorsAreTrainedApart) {
  ModelBytes net;
  net.input("x", 1, {"batch", "4"})
      .output("y")
      .floats("ones", {4}, {1, 1, 1, 1})
      .floats("zeros", {4}, {0, 0, 0, 0});
  net.floats("w", {4, 4}, wave(16));
  net.node("LayerNormalization", {"x", "ones", "zeros"}, {"a"}).node("MatMul", {"a", "w"}, {"b"});
  net.node("LayerNormalization", {"b", "ones", "zeros"}, {"y"});
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net.bytes()), {.batch = 2}, graph);
  EXPECT_EQ(model.parameters.size(), 5u);
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_EQ(model.notes[0], "2 vectors stood for 4 equal weights, which are trained apart");
}

TEST(ImportModel, MergedFactorsAreTrainedApartIfTheyAreFresh) {
  const auto parameters = [](const std::vector<float>& scale) {
    ModelBytes net;
    net.input("x", 1, {"batch", "4"}).output("y").floats("scale", {4}, scale);
    net.node("Mul", {"x", "scale"}, {"a"}).node("Tanh", {"a"}, {"b"}).node("Mul", {"b", "scale"}, {"y"});
    Graph graph;
    return import_model(model_of(net.bytes()), {.batch = 2}, graph).parameters.size();
  };
  EXPECT_EQ(parameters({0.1f, 0.1f, 0.1f, 0.1f}), 2u);
  EXPECT_EQ(parameters({0.1f, 0.2f, 0.1f, 0.1f}), 1u);
}

TEST(ImportModel, AHeadThatIsATransposedCopyOfItsTableIsTied) {
  const auto model = [](float last) {
    ModelBytes net;
    net.input("x", 7, {"batch", "3"}).output("y").floats("table", {3, 2}, {1, 2, 3, 4, 5, 6});
    net.floats("head", {2, 3}, {1, 3, 5, 2, 4, last});
    net.node("Gather", {"table", "x"}, {"e"}).node("MatMul", {"e", "head"}, {"y"});
    Graph graph;
    const onnx::ImportedModel imported = import_model(model_of(net.bytes()), {.batch = 2}, graph);
    return std::pair(imported.parameters.size(), imported.notes);
  };
  EXPECT_EQ(model(6).first, 1u);
  ASSERT_EQ(model(6).second.size(), 1u);
  EXPECT_EQ(model(6).second[0], "'head' is 'table' transposed: they stay one weight");
  EXPECT_EQ(model(7).first, 2u);
}

// What the running mean and variance of a normalisation hold at first.
std::pair<float, float> first_statistics(const std::vector<float>& shift, float variance,
                                         int64_t training_mode) {
  ModelBytes net;
  net.input("x", 1, {"batch", "2", "3", "3"})
      .output("y")
      .floats("scale", {2}, {1, 1})
      .floats("shift", {2}, shift);
  net.floats("mean", {2}, {0.25f, 0.25f}).floats("variance", {2}, {variance, variance});
  net.node("BatchNormalization", {"x", "scale", "shift", "mean", "variance"}, {"y"},
           {int_attribute("training_mode", training_mode), float_attribute("momentum", 0.9f)});
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net.bytes()), {.batch = 2}, graph);
  Runtime runtime({.device = "cpu"});
  const Variables variables(graph, runtime.device(), runtime.allocator());
  std::array<float, 2> first{};
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<std::byte> bytes = variables.read(model.statistics.at(i).value);
    std::memcpy(&first[i], bytes.data(), sizeof(float));
  }
  return {first[0], first[1]};
}

TEST(ImportModel, StatisticsOfAnUntrainedNetThatItsExportMovedStartAnew) {
  EXPECT_EQ(first_statistics({0, 0}, 0.95f, 1), std::pair(0.0f, 1.0f));
  // An export for inference moves none; a net that was trained has other shifts, or other variances.
  EXPECT_EQ(first_statistics({0, 0}, 0.95f, 0), std::pair(0.25f, 0.95f));
  EXPECT_EQ(first_statistics({0.5f, 0}, 0.95f, 1), std::pair(0.25f, 0.95f));
  EXPECT_EQ(first_statistics({0, 0}, 0.5f, 1), std::pair(0.25f, 0.5f));
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

// Trains on one batch and returns the losses.
std::vector<float> losses_of(const onnx::ModelStep& step, const RuntimeOptions& options, int steps) {
  Runtime runtime(options);
  Variables variables(step.graph, runtime.device(), runtime.allocator());
  Session session(step.graph, step.targets(), PlanMode::kPacked, variables);
  const std::vector<float> data = wave(step.model.inputs[0].value.shape().elements(), 1);
  std::copy(data.begin(), data.end(), session.input<float>(step.model.inputs[0].value).begin());
  std::iota(session.input<int32_t>(step.labels).begin(), session.input<int32_t>(step.labels).end(), 0);
  session.input<float>(step.learning_rate)[0] = 0.05f;
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    session.run();
    losses.push_back(session.output<float>(step.loss)[0]);
  }
  return losses;
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

TEST(ImportModel, ASoftmaxTakesTheMaskAndTheScalesBeforeIt) {
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

TEST(OnnxImport, NodesThatComputeGeluAreOneNode) {
  EXPECT_EQ(ops_of(gelu_net(0.044715f)), (std::vector<std::string>{"matmul", "tanh_gelu"}));
  ModelBytes exact;
  exact.input("x", 1, {"batch", "7"}).output("y").floats("root", {}, {1.4142135f}).floats("one", {}, {1});
  exact.floats("half", {}, {0.5f}).node("Div", {"x", "root"}, {"d"}).node("Erf", {"d"}, {"e"});
  exact.node("Add", {"e", "one"}, {"a"}).node("Mul", {"x", "a"}, {"m"}).node("Mul", {"m", "half"}, {"y"});
  EXPECT_EQ(ops_of(exact), std::vector<std::string>{"gelu"});
}

TEST(OnnxImport, NodesThatComputeSomethingElseThanGeluStay) {
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

TEST(OnnxImport, AnAttentionsSoftmaxIsOneNodeAndAMaskOfZerosNone) {
  EXPECT_EQ(ops_of(attention_net(0)), std::vector<std::string>{"softmax"});
  EXPECT_EQ(ops_of(attention_net(1)), (std::vector<std::string>{"softmax", "not_equal", "where"}));
  EXPECT_EQ(ops_of(attention_net(0, "s")), (std::vector<std::string>{"softmax", "not_equal", "where"}));
}

// x (batch,5,8) -> two heads of 4, whose scores are masked, and classes. `mask` is added to the scores, which
// are an output if `shows_scores`.
ModelBytes heads_net(const std::string& mask, bool shows_scores = false) {
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
  for (const std::string head : {"q", "k", "v"}) {
    net.floats(head + ".w", {8, 8}, wave(64, 0.3f + 0.1f * static_cast<float>(head[0] - 'k')));
    net.node("MatMul", {"x", head + ".w"}, {head + ".all"})
        .node("Reshape", {head + ".all", "split"}, {head + ".s"});
    net.node("Transpose", {head + ".s"}, {head}, {ints_attribute("perm", {0, 2, 1, 3})});
  }
  net.node("Transpose", {"k"}, {"kt"}, {ints_attribute("perm", {0, 1, 3, 2})});
  net.node("MatMul", {"q", "kt"}, {"scores"}).node("Mul", {"scores", "half"}, {"scaled"});
  net.node("Add", {"scaled", mask}, {"masked"}).node("Softmax", {"masked"}, {"p"});
  net.node("MatMul", {"p", "v"}, {"o"})
      .node("Transpose", {"o"}, {"t"}, {ints_attribute("perm", {0, 2, 1, 3})});
  net.floats("head.w", {40, 3}, wave(120)).node("Reshape", {"t", "join"}, {"flat"});
  net.node("MatMul", {"flat", "head.w"}, {"y"});
  return net;
}

TEST(OnnxImport, HeadsOfAttentionAreOneNodeThatKeepsNoScores) {
  for (const char* mask : {"causal", "written", "none"}) {
    Graph graph;
    const onnx::ImportedModel model =
        import_model(model_of(heads_net(mask).bytes()), {.batch = 2, .stores_half = true}, graph);
    for (const onnx::BoundTensor& parameter : model.parameters) EXPECT_NE(parameter.name, "written");
    EXPECT_EQ(count_of(graph, "attention"), 1) << mask;
    for (const char* merged : {"softmax", "transpose", "scale", "add"}) EXPECT_EQ(count_of(graph, merged), 0);
  }
}

TEST(OnnxImport, AttentionOfRankThreeStaysAsItIs) {
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

TEST(OnnxImport, ScoresThatSomebodyReadsAndMasksThatLearnStay) {
  for (const ModelBytes& net : {heads_net("factor"), heads_net("causal", true)}) {
    Graph graph;
    import_model(model_of(net.bytes()), {.batch = 2, .stores_half = true}, graph);
    EXPECT_EQ(count_of(graph, "attention"), 0);
    EXPECT_EQ(count_of(graph, "softmax"), 1);
  }
}

TEST(ModelStep, MergedAttentionLearnsTheSame) {
  const auto model = model_of(heads_net("causal").bytes());
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

TEST(ModelStep, AStridedConvolutionOfFewChannelsLearnsTheSameByBlocksOfPixels) {
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
      onnx::ModelStepSettings settings{.import = {.batch = 3, .stores_half = stores_half},
                                       .optimizer = "sgd"};
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
