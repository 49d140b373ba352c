#include "tests/runtime/onnx/small_nets.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <span>

#include "base/errors.h"
#include "runtime/onnx/read_model.h"
#include "runtime/session/session.h"

namespace headroom::test {

std::shared_ptr<const onnx::Model> model_of(const std::string& bytes) {
  // Tensors point into the bytes.
  static std::deque<std::string> kept;
  const std::string& text = kept.emplace_back(bytes);
  return std::make_shared<const onnx::Model>(
      onnx::parse_model(std::as_bytes(std::span(text.data(), text.size())), "net.onnx"));
}

std::vector<float> wave(int64_t count, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(scale * std::sin(static_cast<float>(i) * 1.7f));
  return values;
}

int count_of(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [&](const Node& node) { return op_name(node.op) == op; }));
}

std::vector<std::vector<float>> answers_of(const std::string& bytes, const onnx::ImportSettings& settings,
                                           const std::vector<std::vector<float>>& inputs,
                                           const std::string& device, Precision precision) {
  const auto inference = make_model_inference(model_of(bytes), {.import = settings, .precision = precision});
  Runtime runtime({.device = device});
  Variables variables(inference->graph, runtime.device(), runtime.allocator());
  Session session(inference->graph, inference->targets(), PlanMode::kPacked, variables);
  for (size_t i = 0; i < inference->model.inputs.size(); ++i) {
    const onnx::BoundTensor& input = inference->model.inputs[i];
    const auto to = session.input<float>(input.value);
    const bool is_transposed = input.order == onnx::Axes{1, 0};
    const auto rows = static_cast<size_t>(is_transposed ? input.shape[0] : 1), columns = to.size() / rows;
    for (size_t at = 0; at < to.size(); ++at) to[at % columns * rows + at / columns] = inputs.at(i)[at];
  }
  session.run();
  std::vector<std::vector<float>> outputs;
  for (const Value& value : inference->outputs) {
    const auto take = [&](auto numbers) {
      std::vector<float>& output = outputs.emplace_back();
      for (const auto number : numbers) output.push_back(static_cast<float>(number));
    };
    if (value.spec().dtype == DType::kF32) take(session.output<float>(value));
    if (value.spec().dtype == DType::kI32) take(session.output<int32_t>(value));
    if (value.spec().dtype == DType::kU8) take(session.output<uint8_t>(value));
  }
  return outputs;
}

std::string refusal_of(const std::string& bytes, const onnx::ImportSettings& settings) {
  try {
    Graph graph;
    import_model(model_of(bytes), settings, graph);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

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

}  // namespace headroom::test
