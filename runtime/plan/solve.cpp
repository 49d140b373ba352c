#include "runtime/plan/solve.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/plan/order_nodes.h"
#include "runtime/plan/recompute.h"

namespace headroom {
namespace {

constexpr std::array kLevers = {
    Lever{"order", "runs nodes early that free more than they take", order_nodes},
    Lever{"recompute", "drops values and computes them again", recompute},
};

StepModel model_of(const StepProblem& problem, const StepState& state) {
  return {problem.graph, problem.targets, state.nodes, problem.workspace_bytes, problem.node_us};
}

StepModel::Outcome evaluate(StepModel& model, const StepState& state) {
  return model.evaluate(state.choices.empty() ? model.keep_all() : state.choices);
}

}  // namespace

std::span<const Lever> levers() {
  return kLevers;
}

Solution solve(const StepProblem& problem, const LeverEffort& effort) {
  StepState state{find_needed_nodes(problem.graph, problem.targets)};
  Solution solution;
  StepModel::Outcome now;
  {
    StepModel model = model_of(problem, state);
    now = evaluate(model, state);
    solution.least_bytes = model.least_bytes();
  }
  bool is_changed = false;
  for (const Lever& lever : kLevers) {
    if (now.peak_bytes <= effort.budget_bytes) break;
    StepState next = lever.apply(problem, state, effort);
    StepModel model = model_of(problem, next);
    const StepModel::Outcome then = evaluate(model, next);
    if (!then.is_valid || then.peak_bytes >= now.peak_bytes) continue;
    solution.levers.push_back({lever.name, now.peak_bytes - then.peak_bytes, then.us - now.us});
    solution.schedule = model.schedule();
    state = std::move(next);
    now = then;
    is_changed = true;
  }
  if (!is_changed) solution.schedule = {};
  solution.step_bytes = now.peak_bytes;
  solution.us = now.us;
  return solution;
}

}  // namespace headroom
