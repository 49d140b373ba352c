// Adapters of low rank: their names and first values, their gradients, what is not trained, and the merged
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/session/session.h"
#include "tests/runtime/onnx/model_bytes.h"
#include "tests/runtime/onnx/small_nets.h"

namespace headroom::test {
namespace {

constexpr int64_t kLoraIn = 6, kLoraHidden = 8, kLoraRank = 2, kLoraBatch = 4;
constexpr double kLoraAlpha = 3;

// Two dense layers, the first as exporters write a Linear: a weight (out,in), transposed.
std::string net_bytes(const std::vector<float>& first, const std::vector<float>& last) {
  ModelBytes net;
  net.input("x", 1, {"batch", "6"})
      .output("y")
      .floats("layers.0.q_proj.weight", {kLoraHidden, kLoraIn}, first);
  net.floats("norm.weight", {kLoraHidden}, std::vector<float>(kLoraHidden, 1.5f))
      .floats("head.weight", {kLoraHidden, kLoraBatch}, last);
  net.node("Transpose", {"layers.0.q_proj.weight"}, {"t"}, {ints_attribute("perm", {1, 0})});
  net.node("MatMul", {"x", "t"}, {"h"}).node("Mul", {"h", "norm.weight"}, {"n"}).node("Tanh", {"n"}, {"a"});
  return net.node("MatMul", {"a", "head.weight"}, {"y"}).bytes();
}

std::string net_bytes() {
  return net_bytes(wave(kLoraHidden * kLoraIn), wave(kLoraHidden * kLoraBatch, 0.7f));
}

std::unique_ptr<onnx::ModelStep> step_of(const onnx::LoraSettings& lora,
                                         const std::string& bytes = net_bytes(),
                                         const std::string& optimizer = "sgd") {
  return make_model_step(
      model_of(bytes),
      {.import = {.batch = kLoraBatch, .lora = lora}, .optimizer = optimizer, .fetches_gradients = true});
}

// Runs a step on variables that can be read and written between runs.
class Trainer {
 public:
  explicit Trainer(const onnx::ModelStep& step)
      : step_(step),
        runtime_({.device = "cpu"}),
        variables_(step.graph, runtime_.device(), runtime_.allocator()),
        session_(step.graph, targets(step), PlanMode::kPacked, variables_) {
    const std::vector<float> x = wave(kLoraBatch * kLoraIn, 1);
    std::copy(x.begin(), x.end(), session_.input<float>(step.model.inputs[0].value).begin());
    std::iota(session_.input<int32_t>(step.labels).begin(), session_.input<int32_t>(step.labels).end(), 0);
  }
  double loss(float learning_rate = 0) {
    session_.input<float>(step_.learning_rate)[0] = learning_rate;
    session_.run();
    return static_cast<double>(session_.output<float>(step_.loss)[0]);
  }
  std::vector<float> gradient(size_t i) {
    const auto numbers = session_.output<float>(step_.gradients[i]);
    return {numbers.begin(), numbers.end()};
  }
  std::vector<float> read(const Value& variable) const {
    const std::vector<std::byte> bytes = variables_.read(variable);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  void write(const Value& variable, const std::vector<float>& numbers) {
    variables_.write(variable, std::as_bytes(std::span(numbers)));
  }

 private:
  static Targets targets(const onnx::ModelStep& step) {
    Targets targets = step.targets();
    targets.fetches.insert(targets.fetches.end(), step.gradients.begin(), step.gradients.end());
    return targets;
  }

  const onnx::ModelStep& step_;
  Runtime runtime_;
  Variables variables_;
  Session session_;
};

int64_t variable_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const ValueInfo& value : graph.values()) {
    if (value.kind == ValueKind::kVariable) bytes += value.spec.bytes();
  }
  return bytes;
}

TEST(Lora, TrainsAdaptersUnderTheNamesOfPeftAndNothingElse) {
  const auto step = step_of({.rank = kLoraRank, .alpha = kLoraAlpha});
  ASSERT_EQ(step->model.parameters.size(), 2u);  // the matrix that gives the output has none
  const onnx::BoundTensor &a = step->model.parameters[0], &b = step->model.parameters[1];
  EXPECT_EQ(a.name, "base_model.model.layers.0.q_proj.lora_A.weight");
  EXPECT_EQ(b.name, "base_model.model.layers.0.q_proj.lora_B.weight");
  EXPECT_EQ(a.shape, (Shape{kLoraRank, kLoraIn}));
  EXPECT_EQ(b.shape, (Shape{kLoraHidden, kLoraRank}));
  Trainer run(*step);
  const float limit = 1 / std::sqrt(static_cast<float>(kLoraIn));
  for (const float number : run.read(a.value)) EXPECT_LE(std::abs(number), limit);
  EXPECT_NE(run.read(a.value), std::vector<float>(kLoraRank * kLoraIn, 0));
  EXPECT_EQ(run.read(b.value), std::vector<float>(kLoraHidden * kLoraRank, 0));
  const auto whole = step_of({});
  EXPECT_EQ(run.loss(), Trainer(*whole).loss()) << "B is zero: the first loss is the model's";
}

TEST(Lora, TakesTargetsByPartsOfTheirNames) {
  const auto names = [](const std::vector<std::string>& targets) {
    std::vector<std::string> found;
    const auto step = step_of({.rank = kLoraRank, .targets = targets});
    for (const onnx::BoundTensor& tensor : step->model.parameters) found.push_back(tensor.name);
    return found;
  };
  EXPECT_EQ(names({"q"}).size(), 2u);
  EXPECT_EQ(names({"q_proj"}), names({"q"}));
  EXPECT_EQ(names({"q", "head"}).size(), 4u);
  EXPECT_EQ(names({"head"})[0], "base_model.model.head.lora_A.weight");
  const std::string why =
      refusal_of(net_bytes(), {.batch = kLoraBatch, .lora = {.rank = kLoraRank, .targets = {"pro"}}});
  EXPECT_NE(why.find("layers.0.q_proj, head"), std::string::npos) << why;
}

TEST(Lora, GradientsAreThoseOfFiniteDifferences) {
  const auto step = step_of({.rank = kLoraRank, .alpha = kLoraAlpha, .targets = {"q", "head"}});
  Trainer run(*step);
  for (size_t i = 0; i < step->model.parameters.size(); ++i) {  // B is not zero, so that A has a gradient
    const Value& value = step->model.parameters[i].value;
    run.write(value, wave(value.shape().elements(), 0.3f));
  }
  for (size_t i = 0; i < step->model.parameters.size(); ++i) {
    const Value& value = step->model.parameters[i].value;
    run.loss();
    const std::vector<float> gradient = run.gradient(i), here = run.read(value);
    for (size_t j = 0; j < here.size(); ++j) {
      constexpr float kStep = 1e-2f;
      std::vector<float> moved = here;
      moved[j] = here[j] + kStep;
      run.write(value, moved);
      const double above = run.loss();
      moved[j] = here[j] - kStep;
      run.write(value, moved);
      const double slope = (above - run.loss()) / (2 * static_cast<double>(kStep));
      EXPECT_NEAR(static_cast<double>(gradient[j]), slope, 2e-3 * (1 + std::abs(slope))) << i << " " << j;
    }
    run.write(value, here);
  }
}

// W + alpha / rank B A, in the file, gives what the adapters give beside W.
TEST(Lora, MergedWeightsGiveTheSame) {
  const auto step = step_of({.rank = kLoraRank, .alpha = kLoraAlpha});
  Trainer run(*step);
  const double first = run.loss(0.5f);
  for (int i = 0; i < 5; ++i) run.loss(0.5f);
  const double trained = run.loss();
  EXPECT_LT(trained, first);
  const onnx::BoundTensor &a = step->model.parameters[0], &b = step->model.parameters[1];
  const auto in_file = [&](const onnx::BoundTensor& tensor) {
    const std::vector<float> numbers = run.read(tensor.value);
    if (onnx::is_in_order(tensor.order)) return numbers;
    std::vector<float> moved(numbers.size());
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        moved[static_cast<size_t>(i * columns + j)] = numbers[static_cast<size_t>(j * rows + i)];
    }
    return moved;
  };
  const std::vector<float> left = in_file(b), right = in_file(a);
  std::vector<float> merged = wave(kLoraHidden * kLoraIn);
  for (int64_t i = 0; i < kLoraHidden; ++i) {
    for (int64_t j = 0; j < kLoraIn; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < kLoraRank; ++r)
        sum += static_cast<double>(left[static_cast<size_t>(i * kLoraRank + r)]) *
               static_cast<double>(right[static_cast<size_t>(r * kLoraIn + j)]);
      merged[static_cast<size_t>(i * kLoraIn + j)] += static_cast<float>(kLoraAlpha / kLoraRank * sum);
    }
  }
  const auto plain = step_of({}, net_bytes(merged, wave(kLoraHidden * kLoraBatch, 0.7f)));
  EXPECT_NEAR(Trainer(*plain).loss(), trained, 1e-5);
}

// Adam has two moments for each trained number; the rest is the model and the adapters.
TEST(Lora, FrozenWeightsHaveNoOptimizerState) {
  const auto lora = step_of({.rank = kLoraRank}, net_bytes(), "adam"), all = step_of({}, net_bytes(), "adam");
  constexpr int64_t kModel = (kLoraHidden * kLoraIn + kLoraHidden + kLoraHidden * kLoraBatch) * 4;
  constexpr int64_t kAdapters = kLoraRank * (kLoraIn + kLoraHidden) * 4, kScalars = 64;
  EXPECT_LE(variable_bytes(lora->graph), kModel + 3 * kAdapters + kScalars);
  EXPECT_GE(variable_bytes(all->graph), 3 * kModel);
}

}  // namespace
}  // namespace headroom::test
