#include "runtime/plan/recompute.h"

#include "runtime/plan/given_again.h"
#include "runtime/plan/order_nodes.h"
#include "runtime/plan/search_drops.h"

namespace headroom {

std::vector<StepState> recompute(const StepProblem& problem, std::span<const StepState> before,
                                 int64_t max_work) {
  const auto model_of = [&](const NeededNodes& nodes) {
    return StepModel(problem.graph, problem.targets, nodes, problem.workspace_bytes, problem.node_us);
  };
  const auto most_of = [&](const NeededNodes& nodes) {
    StepModel model = model_of(nodes);
    return model.evaluate(model.keep_all()).peak_bytes;
  };
  // The last reader of what was dropped until then frees it: readers that can run early do so, wherever the
  // peak is.
  const NeededNodes known = with_readers_behind(problem.graph, *before.back().nodes);
  const StepState ordered = order_nodes(problem, before, max_work).back();
  NeededNodes early = with_readers_behind(problem.graph, *ordered.nodes);
  const auto nodes =
      std::make_shared<const NeededNodes>(most_of(early) <= most_of(known) ? std::move(early) : known);
  StepModel model = model_of(*nodes);
  std::vector<StepState> states;
  for (StepModel::Choices& choices : search_drops(model, {}, max_work)) {
    states.push_back({nodes, std::move(choices)});
  }
  return states;
}

}  // namespace headroom
