#include "runtime/session/bound_plan.h"

#include <algorithm>

#include "base/errors.h"
#include "runtime/graph/placement.h"

namespace headroom {
namespace {

Variables& check_graph(const Graph& graph, Variables& variables) {
  if (&variables.graph() != &graph) throw InvalidArgument("session: the variables are another graph's");
  return variables;
}

}  // namespace

BoundPlan::BoundPlan(const Graph& graph, Plan plan, std::shared_ptr<const Kernels> kernels,
                     Variables& variables, const SharedArenas* arenas)
    : plan_(std::move(plan)),
      kernels_(std::move(kernels)),
      memory_(plan_, check_graph(graph, variables), arenas),
      nodes_(graph.nodes().size()) {
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kRun) bind_node(step.id);
  }
}

void BoundPlan::bind_node(int id) {
  const Node& node = graph().node(id);
  BoundNode& bound = nodes_[static_cast<size_t>(id)];
  bound.on = &memory_.device_of(node);
  bound.queues_itself = std::holds_alternative<CopyToDevice>(node.op) &&
                        (home_of(node.inputs[0]).device != bound.on->device || is_host_copy(graph(), node));
  bound.kernel = &kernels_->of_node(id);
  const auto follow = [&](int buffer, void** pointer) {
    if (buffer >= 0) memory_.follow(buffer, pointer);
  };
  const auto bind = [&](const std::vector<int>& values, std::vector<TensorView>& views) {
    for (const int value : values) views.push_back({memory_.address_of(value), graph().value(value).spec});
    for (size_t i = 0; i < values.size(); ++i) {
      follow(plan_.buffer_of_value[static_cast<size_t>(values[i])], &views[i].data);
    }
  };
  bind(node.inputs, bound.inputs);
  bind(node.outputs, bound.outputs);
  follow(plan_.workspace_of_node[static_cast<size_t>(id)], &bound.workspace);
}

StreamWork BoundPlan::work_of(int id) const {
  const BoundNode& bound = nodes_[static_cast<size_t>(id)];
  const Node& node = graph().node(id);
  StreamWork work{[bound](Stream stream) { bound.run(stream); }, node.name};
  if (std::holds_alternative<Reshape>(node.op)) return work;
  const std::vector<int> mutated = mutated_inputs(node.op, node.inputs.size());
  const auto use = [&](const TensorView& view, int value, bool writes) {
    const ValueInfo& info = graph().value(value);
    if (writes) work.place = info.source;
    if (view.data != nullptr) work.uses.push_back({view.data, info.spec.bytes(), writes, info.name});
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    use(bound.inputs[i], node.inputs[i], std::ranges::find(mutated, static_cast<int>(i)) != mutated.end());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) use(bound.outputs[i], node.outputs[i], true);
  const int workspace = plan_.workspace_of_node[static_cast<size_t>(id)];
  if (workspace >= 0) {
    work.uses.push_back(
        {bound.workspace, plan_.buffers[static_cast<size_t>(workspace)].bytes, true, "its workspace"});
  }
  return work;
}

}  // namespace headroom
