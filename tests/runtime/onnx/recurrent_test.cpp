// Recurrent layers of ONNX files against plain loops in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/errors.h"
#include "runtime/onnx/import_model.h"
#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

constexpr int64_t kSteps = 4, kBatch = 3, kChannels = 2, kHidden = 5;

struct LayerCase {
  std::string op;
  int64_t gates, states;
  std::string direction = "forward";
  bool batch_first = false, has_states = true, has_bias = true, has_peepholes = false, resets_after = false;
  std::string activation = {};
  std::vector<int64_t> lengths = {};  // of the sequences; all steps without

  int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The contents of the layer's operands.
struct Operands {
  explicit Operands(const LayerCase& c)
      : x(wave(kSteps * kBatch * kChannels, 1)),
        w(wave(c.directions() * c.gates * kHidden * kChannels)),
        r(wave(c.directions() * c.gates * kHidden * kHidden, 0.6f)),
        bias(wave(c.directions() * 2 * c.gates * kHidden, c.has_bias ? 0.3f : 0)),
        peepholes(wave(c.directions() * 3 * kHidden, c.has_peepholes ? 0.7f : 0)),
        first(wave(c.directions() * kBatch * kHidden, c.has_states ? 0.4f : 0)),
        first_cell(wave(c.directions() * kBatch * kHidden, c.has_states ? 0.9f : 0)) {}
  std::vector<float> x, w, r, bias, peepholes, first, first_cell;
};

// Y in the layout of the case.
std::vector<double> expected(const LayerCase& c, const Operands& o) {
  const int64_t directions = c.directions();
  std::vector<double> y(static_cast<size_t>(kSteps * directions * kBatch * kHidden));
  const auto at = [](const std::vector<float>& values, int64_t i) {
    return static_cast<double>(values[static_cast<size_t>(i)]);
  };
  for (int64_t d = 0; d < directions; ++d) {
    const bool is_reversed = c.direction == "reverse" || d == 1;
    for (int64_t n = 0; n < kBatch; ++n) {
      const int64_t state = c.batch_first ? n * directions + d : d * kBatch + n;
      std::vector<double> h, cell;
      for (int64_t u = 0; u < kHidden; ++u) {
        h.push_back(at(o.first, state * kHidden + u));
        cell.push_back(at(o.first_cell, state * kHidden + u));
      }
      for (int64_t i = 0; i < kSteps; ++i) {
        const int64_t t = is_reversed ? kSteps - 1 - i : i;
        const auto input = [&](int64_t row) {
          double sum = at(o.bias, d * 2 * c.gates * kHidden + row);
          for (int64_t k = 0; k < kChannels; ++k) {
            const int64_t pixel = c.batch_first ? n * kSteps + t : t * kBatch + n;
            sum += at(o.x, pixel * kChannels + k) * at(o.w, (d * c.gates * kHidden + row) * kChannels + k);
          }
          return sum;
        };
        const auto recurrent = [&](const std::vector<double>& from, int64_t row) {
          double sum = at(o.bias, (d * 2 + 1) * c.gates * kHidden + row);
          for (int64_t k = 0; k < kHidden; ++k)
            sum += from[static_cast<size_t>(k)] * at(o.r, (d * c.gates * kHidden + row) * kHidden + k);
          return sum;
        };
        if (!c.lengths.empty() && t >= c.lengths[static_cast<size_t>(n)]) continue;  // y stays 0
        std::vector<double> next(h), next_cell(cell), reset_h(h);
        for (int64_t u = 0; u < kHidden && c.op == "GRU"; ++u)
          reset_h[static_cast<size_t>(u)] *= sigmoid(input(kHidden + u) + recurrent(h, kHidden + u));
        for (int64_t u = 0; u < kHidden; ++u) {
          const auto unit = static_cast<size_t>(u);
          const auto gate = [&](int64_t g) { return input(g * kHidden + u) + recurrent(h, g * kHidden + u); };
          const auto peep = [&](int64_t g) { return at(o.peepholes, (d * 3 + g) * kHidden + u); };
          if (c.op == "LSTM") {
            const double in = sigmoid(gate(0) + peep(0) * cell[unit]);
            const double forget = sigmoid(gate(2) + peep(2) * cell[unit]);
            next_cell[unit] = forget * cell[unit] + in * std::tanh(gate(3));
            next[unit] = sigmoid(gate(1) + peep(1) * next_cell[unit]) * std::tanh(next_cell[unit]);
          } else if (c.op == "GRU") {
            const int64_t row = 2 * kHidden + u;
            const double update = sigmoid(gate(0)), reset = sigmoid(gate(1));
            const double candidate = std::tanh(
                input(row) + (c.resets_after ? reset * recurrent(h, row) : recurrent(reset_h, row)));
            next[unit] = (1 - update) * candidate + update * h[unit];
          } else {
            next[unit] = c.activation == "Relu" ? std::max(0.0, gate(0)) : std::tanh(gate(0));
          }
          const int64_t place =
              c.batch_first ? (n * kSteps + t) * directions + d : (t * directions + d) * kBatch + n;
          y[static_cast<size_t>(place * kHidden + u)] = next[unit];
        }
        h = next;
        cell = next_cell;
      }
    }
  }
  return y;
}

ModelBytes net_of(const LayerCase& c, const Operands& o) {
  const int64_t directions = c.directions();
  const auto text = [](int64_t number) { return std::to_string(number); };
  const std::vector<int64_t> state = c.batch_first ? std::vector<int64_t>{kBatch, directions, kHidden}
                                                   : std::vector<int64_t>{directions, kBatch, kHidden};
  ModelBytes net;
  const int64_t first = c.batch_first ? kBatch : kSteps, second = c.batch_first ? kSteps : kBatch;
  net.input("x", 1, {text(first), text(second), text(kChannels)}).output("y");
  net.floats("w", {directions, c.gates * kHidden, kChannels}, o.w);
  net.floats("r", {directions, c.gates * kHidden, kHidden}, o.r);
  net.floats("b", {directions, 2 * c.gates * kHidden}, o.bias)
      .floats("p", {directions, 3 * kHidden}, o.peepholes);
  if (!c.lengths.empty()) net.integers("l", c.lengths);
  net.floats("h0", state, o.first).floats("c0", state, o.first_cell);
  std::vector<std::string> inputs = {
      "x", "w", "r", c.has_bias ? "b" : "", c.lengths.empty() ? "" : "l", c.has_states ? "h0" : ""};
  if (c.states == 2) inputs.insert(inputs.end(), {c.has_states ? "c0" : "", c.has_peepholes ? "p" : ""});
  std::vector<std::string> attributes = {int_attribute("hidden_size", kHidden),
                                         text_attribute("direction", c.direction)};
  if (c.batch_first) attributes.push_back(int_attribute("layout", 1));
  if (c.resets_after) attributes.push_back(int_attribute("linear_before_reset", 1));
  if (!c.activation.empty())
    attributes.push_back(
        texts_attribute("activations", std::vector(static_cast<size_t>(directions), c.activation)));
  net.node(c.op, inputs, {"y"}, attributes);
  return net;
}

std::vector<LayerCase> all_cases() {
  std::vector<LayerCase> cases;
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (const bool batch_first : {false, true}) {
      cases.push_back({"LSTM", 4, 2, direction, batch_first});
      cases.push_back({"GRU", 3, 1, direction, batch_first});
      cases.push_back({"RNN", 1, 1, direction, batch_first});
      cases.push_back({"GRU", 3, 1, direction, batch_first, true, true, false, true});
      cases.push_back({"LSTM", 4, 2, direction, batch_first, true, true, true});
      cases.push_back({"RNN", 1, 1, direction, batch_first, true, true, false, false, "Relu"});
    }
  }
  for (const char* direction : {"forward", "bidirectional"}) {
    for (const bool batch_first : {false, true}) {
      cases.push_back({"LSTM", 4, 2, direction, batch_first, true, true, false, false, {}, {4, 1, 3}});
      cases.push_back({"GRU", 3, 1, direction, batch_first, true, true, false, true, {}, {2, 4, 1}});
    }
  }
  cases.push_back({"LSTM", 4, 2, "bidirectional", false, false, false});
  cases.push_back({"GRU", 3, 1, "bidirectional", true, false, false, false, true});
  return cases;
}

TEST(Recurrent, LayersOfAllKindsDirectionsAndLayoutsComputeWhatTheSpecificationSays) {
  for (const LayerCase& c : all_cases()) {
    SCOPED_TRACE(c.op + " " + c.direction + (c.batch_first ? " batch first" : "") +
                 (c.resets_after ? " resets after" : "") + (c.has_peepholes ? " peepholes" : "") +
                 (c.lengths.empty() ? "" : " lengths") + c.activation);
    const Operands operands(c);
    const auto inference = make_model_inference(model_of(net_of(c, operands).bytes()), {});
    Runtime runtime({.device = "cpu"});
    Variables variables(inference->graph, runtime.device(), runtime.allocator());
    Session session(inference->graph, Targets{inference->outputs}, PlanMode::kPacked, variables);
    const onnx::BoundTensor& input = inference->model.inputs.at(0);
    const Shape shape = c.batch_first ? Shape{kBatch, kSteps, kChannels} : Shape{kSteps, kBatch, kChannels};
    const onnx::HostTensor x({DType::kF32, shape}, std::as_bytes(std::span(operands.x)));
    const onnx::HostTensor fed = onnx::compute(Transpose{input.order}, std::vector{x});
    std::copy(fed.data<float>().begin(), fed.data<float>().end(), session.input<float>(input.value).begin());
    session.run();
    const std::vector<double> there = expected(c, operands);
    const auto here = session.output<float>(inference->outputs[0]);
    ASSERT_EQ(here.size(), there.size());
    for (size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(static_cast<double>(here[i]), there[i], 1e-5) << i;
  }
}

TEST(Recurrent, WeightsAreTrainedAndStatesAreNot) {
  const LayerCase c{"LSTM", 4, 2, "bidirectional", true, true, true, true};
  Graph graph;
  const onnx::ImportedModel model = import_model(model_of(net_of(c, Operands(c)).bytes()), {}, graph);
  std::vector<std::string> names;
  for (const onnx::BoundTensor& parameter : model.parameters) names.push_back(parameter.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"b", "p", "r", "w"}));
}

// The whole net learns: the gradients of all steps meet in the weights.
TEST(Recurrent, ANetLearns) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    const int64_t gates = op == std::string("LSTM") ? 4 : op == std::string("GRU") ? 3 : 1;
    ModelBytes net;
    net.input("x", 1, {"batch", "4", "2"}).output("y");
    net.floats("w", {1, gates * 5, 2}, wave(gates * 10)).floats("r", {1, gates * 5, 5}, wave(gates * 25));
    net.integers("shape", {0, 20});
    net.node(op, {"x", "w", "r"}, {"s"}, {int_attribute("layout", 1)}).node("Reshape", {"s", "shape"}, {"y"});
    const auto step = make_model_step(model_of(net.bytes()), {.import = {.batch = 3}, .optimizer = "sgd"});
    const std::vector<float> losses = losses_of(*step, {.device = "sim"}, 20);
    EXPECT_LT(losses.back(), losses.front()) << op;
  }
}

std::string refusal(const ModelBytes& net) {
  Graph graph;
  try {
    import_model(model_of(net.bytes()), {}, graph);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(Recurrent, WhatIsNotSupportedIsSaid) {
  const auto net_with = [](const std::vector<std::string>& x_axes, const std::vector<int64_t>& state,
                           const std::vector<std::string>& attributes) {
    ModelBytes net;
    net.input("x", 1, x_axes).output("y");
    std::vector<std::string> axes;
    for (const int64_t extent : state) axes.push_back(std::to_string(extent));
    net.input("h", 1, axes).floats("w", {1, 5, 2}, wave(10)).floats("r", {1, 5, 5}, wave(25));
    net.node("RNN", {"x", "w", "r", "", "", "h"}, {"y"}, attributes);
    return net;
  };
  const std::vector<std::string> x = {"4", "3", "2"};
  EXPECT_EQ(refusal(net_with(x, {1, 3, 5}, {})), "");
  const auto says = [](const ModelBytes& net, const char* what) {
    const std::string why = refusal(net);
    EXPECT_NE(why.find(what), std::string::npos) << why;
  };
  const std::string batch_first = int_attribute("layout", 1);
  says(net_with(x, {3, 5}, {batch_first}), "operand 5 is [3,5]");
  says(net_with(x, {4, 1, 5, 1}, {batch_first}), "operand 5 is [4,1,5,1]");
  says(net_with({"4", "6"}, {1, 3, 5}, {}), "takes sequences (T,N,C)");
  says(net_with({"1099511627776", "3", "2"}, {1, 3, 5}, {}), "10000 can be unrolled");
  says(net_with(x, {1, 3, 5}, {int_attribute("hidden_size", int64_t{1} << 62)}), "weights of 5");
  says(net_with(x, {1, 3, 5}, {text_attribute("direction", "sideways")}), "the direction sideways");
  says(net_with(x, {1, 3, 5}, {texts_attribute("activations", {"Affine"})}), "the activation Affine");
  says(net_with(x, {1, 3, 5}, {float_attribute("clip", 1)}), "clips");
}

}  // namespace
}  // namespace headroom::test
