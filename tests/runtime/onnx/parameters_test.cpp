// Tests which tensors of a file are trained, and their initial values.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/onnx/import_model.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

TEST(Parameters, TiedWeightsStayTied) {
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

TEST(Parameters, MergedVectorsAreTrainedApart) {
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

TEST(Parameters, ABiasOfALayerThatIsUsedTwiceIsOneWeight) {
  ModelBytes by_gemm, by_sum;
  for (ModelBytes* net : {&by_gemm, &by_sum})
    net->input("x", 1, {"batch", "4"})
        .output("y")
        .floats("w", {4, 4}, wave(16))
        .floats("b", {4}, {0, 0, 0, 0});
  by_gemm.node("Gemm", {"x", "w", "b"}, {"a"}).node("Tanh", {"a"}, {"t"});
  by_gemm.node("Gemm", {"t", "w", "b"}, {"y"});
  by_sum.node("MatMul", {"x", "w"}, {"p"}).node("Add", {"b", "p"}, {"a"}).node("Tanh", {"a"}, {"t"});
  by_sum.node("MatMul", {"t", "w"}, {"q"}).node("Add", {"q", "b"}, {"y"});
  for (const ModelBytes& net : {by_gemm, by_sum}) {
    Graph graph;
    EXPECT_EQ(import_model(model_of(net.bytes()), {.batch = 2}, graph).parameters.size(), 2u);
  }
}

TEST(Parameters, MergedFactorsAreTrainedApartIfTheyAreFresh) {
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

TEST(Parameters, MergedBiasesOfMoreAxesAreTrainedApartIfTheyAreFresh) {
  const auto parameters = [](const std::vector<float>& bias) {
    ModelBytes net;
    net.input("x", 1, {"batch", "2", "3"}).output("y").floats("bias", {2, 3}, bias);
    net.node("Add", {"x", "bias"}, {"a"}).node("Tanh", {"a"}, {"b"}).node("Add", {"b", "bias"}, {"y"});
    Graph graph;
    return import_model(model_of(net.bytes()), {.batch = 2}, graph).parameters.size();
  };
  EXPECT_EQ(parameters({0, 0, 0, 0, 0, 0}), 2u);
  EXPECT_EQ(parameters({0, 0, 0, 0.5f, 0, 0}), 1u);
}

TEST(Parameters, AHeadThatIsATransposedCopyOfItsTableIsTied) {
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

// Returns the initial running mean and variance of a normalization.
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

TEST(Parameters, StatisticsOfAnUntrainedNetThatItsExportMovedStartAnew) {
  EXPECT_EQ(first_statistics({0, 0}, 0.95f, 1), std::pair(0.0f, 1.0f));
  // An export for inference moves none; a net that was trained has other shifts, or other variances.
  EXPECT_EQ(first_statistics({0, 0}, 0.95f, 0), std::pair(0.25f, 0.95f));
  EXPECT_EQ(first_statistics({0.5f, 0}, 0.95f, 1), std::pair(0.25f, 0.95f));
  EXPECT_EQ(first_statistics({0, 0}, 0.5f, 1), std::pair(0.25f, 0.5f));
}

// Returns the rows of a table (4,2) that are trained when all are looked up, and the notes about it.
std::pair<std::vector<int>, std::vector<std::string>> trained_rows(
    const std::vector<float>& table, const std::vector<std::pair<std::string, std::string>>& metadata) {
  ModelBytes net;
  net.input("x", 7, {"batch", "4"}).output("y").floats("table", {4, 2}, table);
  net.node("Gather", {"table", "x"}, {"y"}, {}, metadata);
  const auto step = make_model_step(model_of(net.bytes()),
                                    {.import = {.batch = 1}, .loss = LossKind::kMse, .optimizer = "sgd"});
  Runtime runtime({.device = "sim"});
  Variables variables(step->graph, runtime.device(), runtime.allocator());
  const std::vector<std::byte> before = variables.read(step->model.parameters.at(0).value);
  Session session(step->graph, step->targets(), PlanMode::kPacked, variables);
  std::iota(session.input<int32_t>(step->model.inputs[0].value).begin(),
            session.input<int32_t>(step->model.inputs[0].value).end(), 0);
  std::fill(session.input<float>(step->labels).begin(), session.input<float>(step->labels).end(), 9.0f);
  session.input<float>(step->learning_rate)[0] = 0.5f;
  session.run();
  const std::vector<std::byte> after = variables.read(step->model.parameters[0].value);
  std::vector<int> rows;
  for (int row = 0; row < 4; ++row) {
    const auto at = row * 2 * static_cast<int>(sizeof(float));
    if (!std::equal(before.begin() + at, before.begin() + at + 8, after.begin() + at)) rows.push_back(row);
  }
  return {rows, step->model.notes};
}

TEST(Parameters, ARowOfPaddingIsNotTrained) {
  const std::vector<float> drawn = wave(8, 1), zero_row = {0.5f, 1, 0, 0, 2, 3, 4, 5};
  const auto call = [](const std::string& arguments) {
    return std::vector<std::pair<std::string, std::string>>{
        {"pkg.torch.onnx.fx_node", "%e : call_function[target=torch.ops.aten.embedding.default](args = (" +
                                       arguments + "), kwargs = {})"}};
  };
  const std::vector<int> all = {0, 1, 2, 3};
  // Follows the exporter.
  EXPECT_EQ(trained_rows(drawn, call("%table, %x, 2")).first, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(trained_rows(drawn, call("%table, %x")).first, all);
  EXPECT_EQ(trained_rows(drawn, call("%table, %x, -1")).first, all);
  EXPECT_EQ(trained_rows(drawn, call("%table, %x, 4")).first, all) << "no such row";
  EXPECT_EQ(trained_rows(drawn, call("")).first, all);
  EXPECT_EQ(trained_rows(zero_row, call("%table, %x")).first, all) << "the exporter knows better";
  // Follows the only row of zeros.
  EXPECT_EQ(trained_rows(drawn, {}).first, all);
  const auto [rows, notes] = trained_rows(zero_row, {});
  EXPECT_EQ(rows, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(notes,
            std::vector<std::string>{"row 1 of 'table' is zeros: taken for padding, which is not trained"});
  EXPECT_EQ(trained_rows({0, 0, 0, 0, 2, 3, 4, 5}, {}).first, all) << "two rows of zeros are no padding";
}

}  // namespace
}  // namespace headroom::test
