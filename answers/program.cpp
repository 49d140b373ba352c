#include "answers/program.h"

#include <utility>

#include "kernels/kernel.h"

namespace headroom {

Program with_graph(const Program& program, std::shared_ptr<const Graph> graph) {
  Program result = program;
  for (Targets& targets : result.targets) {
    for (std::vector<Value>* values : {&targets.fetches, &targets.updated}) {
      for (Value& value : *values) value.graph = const_cast<Graph*>(graph.get());
    }
  }
  result.graph = std::move(graph);
  result.plans = nullptr;
  return result;
}

std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph) {
  std::vector<int64_t> bytes;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    if (const auto* custom = std::get_if<Custom>(&node.op)) {  // may have no kernel for the CPU
      bytes.push_back(custom->workspace_bytes(inputs));
      continue;
    }
    bytes.push_back(make_cpu_kernel(node.op, inputs, outputs)->workspace_bytes());
  }
  return bytes;
}

Program planned(Program program, PlanMode mode, std::span<const int64_t> workspace_bytes) {
  std::vector<Plan> plans;
  for (const Targets& targets : program.targets) {
    plans.push_back(make_plan(*program.graph, targets, mode, workspace_bytes));
  }
  program.plans = std::make_shared<const std::vector<Plan>>(std::move(plans));
  return program;
}

std::vector<Program> planned(std::vector<Program> ranks, PlanMode mode) {
  const Program* before = nullptr;
  for (Program& program : ranks) {
    if (before != nullptr && before->graph == program.graph) {
      program.plans = before->plans;
    } else {
      program = planned(program, mode, workspaces_of_cpu_kernels(*program.graph));
    }
    before = &program;
  }
  return ranks;
}

}  // namespace headroom
