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

std::shared_ptr<const PlannedProgram> plan_program(const Program& program, PlanMode mode,
                                                   std::span<const int64_t> workspace_bytes) {
  PlannedProgram result{program, {}};
  for (const Targets& targets : program.targets) {
    result.plans.push_back(make_plan(*program.graph, targets, mode, workspace_bytes));
  }
  return std::make_shared<const PlannedProgram>(std::move(result));
}

std::vector<std::shared_ptr<const PlannedProgram>> plan_programs(std::span<const Program> ranks,
                                                                 PlanMode mode) {
  std::vector<std::shared_ptr<const PlannedProgram>> planned;
  for (const Program& program : ranks) {
    if (!planned.empty() && planned.back()->program.graph == program.graph) {
      planned.push_back(planned.back());
      continue;
    }
    planned.push_back(plan_program(program, mode, workspaces_of_cpu_kernels(*program.graph)));
  }
  return planned;
}

}  // namespace headroom
