#include "runtime/plan/offload.h"

#include <algorithm>
#include <utility>

#include "runtime/plan/search_drops.h"

namespace headroom {

std::vector<StepState> offload(const StepProblem& problem, std::span<const StepState> before,
                               int64_t max_work) {
  if (!problem.host.exists() || before.empty()) return {};
  // A search orders the nodes alike for all budgets.
  const std::shared_ptr<const NeededNodes>& nodes = before.back().nodes;
  std::vector<StepModel::Choices> known;
  for (const StepState& state : before) {
    if (state.nodes == nodes) known.push_back(state.choices);
  }
  StepModel model(problem.graph, problem.targets, *nodes, problem.workspace_bytes, problem.node_us,
                  problem.host);
  std::vector<StepState> states;
  // The search before this one has found most of the way.
  for (StepModel::Choices& choices : search_drops(model, known, max_work / 2)) {
    states.push_back({nodes, std::move(choices)});
  }
  return states;
}

StepState without_offload(StepState state, const StepModel::Choices& keep_all) {
  for (size_t gap = 0; gap < state.choices.size(); ++gap) {
    if (is_on_host(state.choices[gap])) state.choices[gap] = keep_all[gap];
  }
  return state;
}

}  // namespace headroom
