#include "runtime/plan/recompute.h"

#include "runtime/plan/given_again.h"
#include "runtime/plan/search_drops.h"

namespace headroom {

std::vector<StepState> recompute(const StepProblem& problem, std::span<const StepState> before,
                                 int64_t max_work) {
  const auto nodes =
      std::make_shared<const NeededNodes>(with_readers_behind(problem.graph, *before.back().nodes));
  StepModel model(problem.graph, problem.targets, *nodes, problem.workspace_bytes, problem.node_us);
  std::vector<StepState> states;
  for (StepModel::Choices& choices : search_drops(model, {}, max_work)) {
    states.push_back({nodes, std::move(choices)});
  }
  return states;
}

}  // namespace headroom
