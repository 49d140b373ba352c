// Branches, loops, functions and the order of nodes: what is known when a model is imported.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "runtime/onnx/expand_model.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

using Lists = std::vector<std::vector<float>>;

// y = one op of x
ModelBytes branch(const std::string& op) {
  ModelBytes graph;
  return graph.output("r").node(op, {"x"}, {"r"});
}

// x (batch,3) -> the branch that holds for a batch of 2
ModelBytes branches() {
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y").integers("zero", {0}).integers("two", {2});
  net.node("Shape", {"x"}, {"s"})
      .node("Gather", {"s", "zero"}, {"rows"})
      .node("Equal", {"rows", "two"}, {"c"});
  return net.node(
      "If", {"c"}, {"y"},
      {graph_attribute("then_branch", branch("Neg")), graph_attribute("else_branch", branch("Abs"))});
}

TEST(Control, ABranchIsTakenByAShape) {
  const std::vector<float> x = {1, -2, 3, 4, -5, 6}, row = {1, -2, 3};
  EXPECT_EQ(answers_of(branches().bytes(), {.batch = 2}, {x}), (Lists{{-1, 2, -3, -4, 5, -6}}));
  EXPECT_EQ(answers_of(branches().bytes(), {.batch = 1}, {row}), (Lists{{1, 2, 3}}));
}

TEST(Control, ABranchIsTakenByAnInputThatIsKnown) {
  ModelBytes net;
  net.input("x", 1, {"2"}).input("rate", 7, {"1"}).output("y").integers("limit", {9000});
  net.node("Less", {"rate", "limit"}, {"c"});
  net.node("If", {"c"}, {"y"},
           {graph_attribute("then_branch", branch("Neg")), graph_attribute("else_branch", branch("Abs"))});
  EXPECT_EQ(answers_of(net.bytes(), {.dims = {{"rate", 8000}}}, {{1, -2}}), (Lists{{-1, 2}}));
  EXPECT_EQ(answers_of(net.bytes(), {.dims = {{"rate", 16000}}}, {{1, -2}}), (Lists{{1, 2}}));
  EXPECT_NE(refusal_of(net.bytes(), {}).find("its condition depends on the data"), std::string::npos);
}

TEST(Control, AnOpThatIsUnknownRefusesOnlyTheBranchThatIsTaken) {
  ModelBytes net;
  net.input("x", 1, {"2"})
      .output("y")
      .tensor("yes", 9, {1}, std::string(1, 1))
      .tensor("no", 9, {1}, std::string(1, 0));
  ModelBytes other = net;
  const std::vector<std::string> graphs = {graph_attribute("then_branch", branch("Neg")),
                                           graph_attribute("else_branch", branch("Mystery"))};
  EXPECT_EQ(refusal_of(net.node("If", {"yes"}, {"y"}, graphs).bytes(), {}), "");
  EXPECT_NE(refusal_of(other.node("If", {"no"}, {"y"}, graphs).bytes(), {}).find("(Mystery)"),
            std::string::npos);
}

// s = s * x + i for each turn i, whose sums are also collected
ModelBytes loop(const std::string& most, const std::string& condition) {
  ModelBytes body;
  body.input("i", 7, {})
      .input("go", 9, {})
      .input("s", 1, {"2"})
      .output("go_on")
      .output("next")
      .output("seen");
  body.node("Mul", {"s", "x"}, {"product"}).node("Cast", {"i"}, {"turn"}, {int_attribute("to", 1)});
  body.node("Add", {"product", "turn"}, {"next"}).node("Identity", {"next"}, {"seen"});
  body.node("Less", {"i", "last"}, {"go_on"});
  ModelBytes net;
  net.input("x", 1, {"2"}).output("sum").output("all").floats("first", {2}, {1, 1});
  net.integers("three", {3}).integers("last", {1}).integers("endless", {int64_t{1} << 31});
  return net.node("Loop", {most, condition, "first"}, {"sum", "all"}, {graph_attribute("body", body)});
}

TEST(Control, ALoopEndsByItsNumberOrItsCondition) {
  // turns 0 and 1; the condition i < 1 ends it before turn 2
  const Lists expected = {{4 + 1, 9 + 1}, {2, 3, 4 + 1, 9 + 1}};
  EXPECT_EQ(answers_of(loop("three", "").bytes(), {}, {{2, 3}}), expected);
  EXPECT_EQ(answers_of(loop("", "").bytes(), {}, {{2, 3}}), expected);
  EXPECT_EQ(answers_of(loop("endless", "").bytes(), {}, {{2, 3}}), expected);
}

TEST(Control, AScanTakesRowsForwardsAndBackwards) {
  ModelBytes body;
  body.input("s", 1, {"2"}).input("row", 1, {"2"}).output("next").output("seen");
  body.node("Add", {"s", "row"}, {"next"}).node("Neg", {"next"}, {"seen"});
  for (const bool backwards : {false, true}) {
    ModelBytes net;
    net.input("x", 1, {"3", "2"}).output("sum").output("all").floats("first", {2}, {0, 1});
    net.node("Scan", {"first", "x"}, {"sum", "all"},
             {graph_attribute("body", body), int_attribute("num_scan_inputs", 1),
              ints_attribute("scan_input_directions", {backwards ? 1 : 0})});
    const Lists got = answers_of(net.bytes(), {}, {{1, 2, 10, 20, 100, 200}});
    EXPECT_EQ(got[0], (std::vector<float>{111, 223}));
    EXPECT_EQ(got[1], backwards ? (std::vector<float>{-100, -201, -110, -221, -111, -223})
                                : (std::vector<float>{-1, -3, -11, -23, -111, -223}));
  }
}

// Turns train one weight, not one each.
TEST(Control, ALoopSharesItsWeights) {
  ModelBytes body;
  body.input("i", 7, {}).input("go", 9, {}).input("s", 1, {"batch", "3"}).output("go").output("next");
  body.node("MatMul", {"s", "w"}, {"p"}).node("Add", {"p", "b"}, {"next"});
  ModelBytes net;
  net.input("x", 1, {"batch", "3"}).output("y").integers("four", {4});
  net.floats("w", {3, 3}, wave(9)).floats("b", {3}, {0, 0, 0});
  net.node("Loop", {"four", "", "x"}, {"y"}, {graph_attribute("body", body)});
  const auto step = make_model_step(model_of(net.bytes()), {.import = {.batch = 3}, .optimizer = "sgd"});
  EXPECT_EQ(step->model.parameters.size(), 2u);
  const std::vector<float> losses = losses_of(*step, {.device = "cpu"}, 5);
  EXPECT_LT(losses.back(), losses.front());
}

TEST(Control, NodesMayStandInAnyOrder) {
  ModelBytes net;
  net.input("x", 1, {"2"})
      .output("y")
      .node("Neg", {"b"}, {"y"})
      .node("Abs", {"a"}, {"b"})
      .node("Exp", {"x"}, {"a"});
  EXPECT_EQ(answers_of(net.bytes(), {}, {{0, 0}}), (Lists{{-1, -1}}));
  ModelBytes circle;
  circle.input("x", 1, {"2"})
      .output("y")
      .node("Add", {"x", "b"}, {"a"})
      .node("Abs", {"a"}, {"b"})
      .node("Neg", {"b"}, {"y"});
  EXPECT_THROW(model_of(circle.bytes()), InvalidArgument);
}

// Both have an empty name.
TEST(Control, AResultThatIsLeftOutIsNotAnOperandThatIsLeftOut) {
  ModelBytes net;
  net.input("x", 1, {"2", "1", "1"}).output("y").floats("w", {1, 1, 1}, {1}).floats("r", {1, 1, 1}, {0});
  const std::vector<std::string> attributes = {int_attribute("hidden_size", 1)};
  net.node("RNN", {"x", "w", "r", "", "", ""}, {"a", ""}, attributes).node("Squeeze", {"a"}, {"b"});
  net.node("Reshape", {"b", "shape"}, {"c"}).integers("shape", {2, 1, 1});
  net.node("RNN", {"c", "w", "r", "", "", ""}, {"", "y"}, attributes);
  EXPECT_EQ(answers_of(net.bytes(), {}, {{0, 0}}), (Lists{{0}}));
}

TEST(Control, FunctionsAreWrittenOutWithTheAttributesOfTheirCalls) {
  ModelBytes inner, outer;
  inner.node("Softmax", {"v"}, {"soft"}, {attribute_of_call("axis", "along")}).node("Neg", {"soft"}, {"r"});
  outer.domain("own").node("Soft", {"a"}, {"m"}, {attribute_of_call("along", "along")});
  outer.domain("").node("Add", {"m", "b"}, {"r"});
  ModelBytes net;
  net.input("x", 1, {"2", "2"}).output("y").output("z");
  net.function("Soft", {"v"}, {"r"}, inner).function("Both", {"a", "b"}, {"r"}, outer).domain("own");
  net.node("Both", {"x", "x"}, {"y"}, {int_attribute("along", 0)});
  net.node("Both", {"x", "x"}, {"z"}, {int_attribute("along", 1)});
  const Lists got = answers_of(net.bytes(), {}, {{5, 5, 5, 5}});
  EXPECT_EQ(got, (Lists{{4.5f, 4.5f, 4.5f, 4.5f}, {4.5f, 4.5f, 4.5f, 4.5f}}));
  const Lists other = answers_of(net.bytes(), {}, {{0, 100, 0, 100}});
  EXPECT_EQ(other[0], (std::vector<float>{-0.5f, 99.5f, -0.5f, 99.5f}));
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(other[1].at(i), i % 2 == 0 ? 0 : 99, 1e-5) << i;
}

// A small file must not ask for much: each of these asks for more than 2^60 nodes.
TEST(Control, WhatIsWrittenOutIsBounded) {
  ModelBytes doubling;
  doubling.input("x", 1, {"2"}).output("y");
  for (int i = 0; i < 25; ++i) {
    ModelBytes body;
    const std::string next = i == 0 ? "Neg" : "f" + std::to_string(i - 1);
    body.domain(i == 0 ? "" : "own").node(next, {"a"}, {"b"}).node(next, {"b"}, {"c"});
    doubling.function("f" + std::to_string(i), {"a"}, {"c"}, body);
  }
  doubling.domain("own").node("f24", {"x"}, {"y"});
  EXPECT_NE(refusal_of(doubling.bytes(), {}).find("stand for too much"), std::string::npos);

  ModelBytes circle, body;
  body.domain("own").node("f", {"a"}, {"c"});
  circle.input("x", 1, {"2"}).output("y").function("f", {"a"}, {"c"}, body);
  circle.domain("own").node("f", {"x"}, {"y"});
  EXPECT_NE(refusal_of(circle.bytes(), {}).find("in a circle"), std::string::npos);

  ModelBytes inner, middle, loops;
  inner.input("i", 7, {}).input("go", 9, {}).output("go");
  middle.input("j", 7, {})
      .input("go2", 9, {})
      .output("go2")
      .node("Loop", {"many", ""}, {}, {graph_attribute("body", inner)});
  loops.input("x", 1, {"2"}).output("y").integers("many", {int64_t{1} << 31}).node("Neg", {"x"}, {"y"});
  loops.node("Loop", {"many", ""}, {}, {graph_attribute("body", middle)});
  EXPECT_NE(refusal_of(loops.bytes(), {}).find("stand for too much"), std::string::npos);

  ModelBytes deep;
  deep.input("x", 1, {"2"}).output("y").tensor("yes", 9, {1}, std::string(1, 1));
  ModelBytes graph = branch("Neg");
  for (int i = 0; i < 20; ++i) {
    ModelBytes around;
    graph = around.output("r").node(
        "If", {"yes"}, {"r"},
        {graph_attribute("then_branch", graph), graph_attribute("else_branch", branch("Abs"))});
  }
  deep.node("If", {"yes"}, {"y"},
            {graph_attribute("then_branch", graph), graph_attribute("else_branch", branch("Abs"))});
  EXPECT_NE(refusal_of(deep.bytes(), {}).find("deep"), std::string::npos);
}

TEST(Control, SequencesAreListsWhileAModelIsImported) {
  ModelBytes body;
  body.input("i", 7, {}).input("go", 9, {}).input("list", 1, {}).output("go").output("longer");
  body.node("Cast", {"i"}, {"turn"}, {int_attribute("to", 1)}).node("Add", {"x", "turn"}, {"item"});
  body.node("SequenceInsert", {"list", "item"}, {"longer"});
  ModelBytes net;
  net.input("x", 1, {"2"}).output("y").integers("three", {3}).node("SequenceEmpty", {}, {"none"});
  net.node("Loop", {"three", "", "none"}, {"list"}, {graph_attribute("body", body)});
  net.node("ConcatFromSequence", {"list"}, {"y"}, {int_attribute("axis", 0)});
  EXPECT_EQ(answers_of(net.bytes(), {}, {{1, 5}}), (Lists{{1, 5, 2, 6, 3, 7}}));
}

TEST(Control, RefusalsNameTheKindAndTheWayRound) {
  const auto refusal = [](const std::string& domain, const std::string& op) {
    ModelBytes net;
    net.input("x", 1, {"2"}).output("y").domain(domain).node(op, {"x"}, {"y"});
    return refusal_of(net.bytes(), {});
  };
  EXPECT_NE(refusal("com.microsoft", "SkipLayerNormalization").find("before its optimizer"),
            std::string::npos);
  EXPECT_NE(refusal("ai.onnx.ml", "TreeEnsembleClassifier").find("run it in ONNX Runtime"),
            std::string::npos);
  EXPECT_NE(refusal("", "QLinearConv").find("before it was quantized"), std::string::npos);
  EXPECT_NE(refusal("", "MatMulInteger").find("before it was quantized"), std::string::npos);
}

TEST(Control, NewOpsetsAreReadAndNewerOnesNot) {
  ModelBytes net;
  net.input("x", 1, {"2"}).output("y").node("Neg", {"x"}, {"y"});
  const auto refusal = [&](int64_t opset) { return refusal_of(net.bytes(opset), {}); };
  EXPECT_EQ(refusal(26), "");
  EXPECT_EQ(refusal(28), "");
  EXPECT_NE(refusal(29).find("opset 29"), std::string::npos);
}

}  // namespace
}  // namespace headroom::test
