#include "tools/workload/workload_step.h"

#include <random>

#include "base/errors.h"
#include "examples/models/zoo/zoo.h"
#include "runtime/onnx/element_type.h"
#include "runtime/onnx/parameters.h"

namespace headroom {
namespace {

WorkloadStep make_net_step(const ZooNet& net, const WorkloadOptions& options, int rank) {
  const std::shared_ptr<ZooStep> step = make_zoo_step(net, zoo_settings(options, rank));
  const auto feed = [step = step.get()](Session& session) {
    std::mt19937 random(1);
    const auto classes = [&](const Value& input) {
      for (int32_t& value : session.input<int32_t>(input)) {
        value = static_cast<int32_t>(random() % static_cast<uint32_t>(step->classes));
      }
    };
    if (step->input.spec().dtype == DType::kI32) {
      classes(step->input);
    } else {
      for (float& value : session.input<float>(step->input)) {
        value = static_cast<float>(random()) / static_cast<float>(std::mt19937::max());
      }
    }
    classes(step->labels);
    session.input<float>(step->learning_rate)[0] = 1e-3f;
  };
  return {{step, &step->graph}, step->targets(), step->parameters, feed};
}

void feed_inputs(Session& session, const Graph& graph, const onnx::ImportedModel& model) {
  for (const onnx::BoundTensor& input : model.inputs) {
    feed_bytes(session, input.value, drawn_data(input.value.spec(), index_bound(graph, input.value), 1));
  }
}

WorkloadStep make_training_step(const WorkloadOptions& options, int rank) {
  const std::shared_ptr<onnx::ModelStep> step =
      make_model_step(read_model(options.model), model_settings(options, rank));
  const auto feed = [step = step.get()](Session& session) {
    feed_inputs(session, step->graph, step->model);
    feed_bytes(session, step->labels, drawn_data(step->labels.spec(), step->classes, 2));
    session.input<float>(step->learning_rate)[0] = 1e-3f;
  };
  return {{step, &step->graph}, step->targets(), step->parameters(), feed};
}

// A state as the last step left it.
NamedTensor kept(const Variables& variables, const onnx::ImportedState& state) {
  const TensorSpec stored = state.variable.spec();
  std::vector<std::byte> bytes = variables.read(state.variable);
  TensorSpec spec{is_half(stored.dtype) ? DType::kF32 : stored.dtype, state.shape};
  if (is_half(stored.dtype)) {
    const auto type =
        stored.dtype == DType::kBf16 ? onnx::ElementType::kBfloat16 : onnx::ElementType::kFloat16;
    bytes = onnx::convert_elements(type, bytes, stored.shape.elements());
  }
  return {state.input, spec, std::move(bytes)};
}

WorkloadStep make_forward_pass(const WorkloadOptions& options, int rank) {
  const std::shared_ptr<const onnx::Model> model = read_model(options.model);
  onnx::ModelStepSettings settings = model_settings(options, rank);
  const auto states = options.model.states_of(*model);
  const auto data = options.data.empty() ? nullptr : std::make_shared<const ModelData>(options.data, states);
  if (data) {
    settings.import.first_state = [data](const std::string& name, const TensorSpec& spec) {
      return data->first_value(name, spec);
    };
    settings.import.dims.merge(data->dims(*model, 0));
    settings.import.known = data->known(*model);
  }
  const std::shared_ptr<onnx::ModelInference> inference = make_model_inference(model, settings);
  const auto feed = [inference = inference.get(), model, data](Session& session) {
    if (!data) return feed_inputs(session, inference->graph, inference->model);
    for (const onnx::BoundTensor& input : inference->model.inputs) data->feed(session, *model, input);
  };
  const auto outputs = [inference = inference.get()](Session& session) {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < inference->outputs.size(); ++i)
      tensors.push_back(fetched(session, inference->outputs[i], inference->model.output_names[i]));
    // By the names of the inputs, so that another run can begin with them.
    for (const onnx::ImportedState& state : inference->model.states)
      tensors.push_back(kept(session.variables(), state));
    return tensors;
  };
  return {{inference, &inference->graph}, inference->targets(), inference->parameters(), feed, outputs};
}

}  // namespace

WorkloadStep make_workload_step(const WorkloadOptions& options, int rank) {
  if (!options.model.is_given()) return make_net_step(*find_zoo_net(options.net), options, rank);
  return options.inference ? make_forward_pass(options, rank) : make_training_step(options, rank);
}

}  // namespace headroom
