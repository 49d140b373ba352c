#include "tools/workload/workload_step.h"

#include <random>

#include "base/errors.h"
#include "examples/models/zoo/zoo.h"

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

WorkloadStep make_forward_pass(const WorkloadOptions& options, int rank) {
  const std::shared_ptr<const onnx::Model> model = read_model(options.model);
  onnx::ModelStepSettings settings = model_settings(options, rank);
  const auto data = options.data.empty() ? nullptr : std::make_shared<const ModelData>(options.data);
  if (data) {
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
