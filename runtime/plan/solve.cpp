#include "runtime/plan/solve.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/plan/offload.h"
#include "runtime/plan/order_nodes.h"
#include "runtime/plan/recompute.h"

namespace headroom {
namespace {

constexpr std::array kLevers = {
    Lever{"order", "runs nodes that free memory earlier", order_nodes},
    Lever{"recompute", "drops values and recomputes them", recompute},
    Lever{"offload", "keeps values in host memory between their uses", offload, true, without_offload},
};

// Nodes of all schedules that a lever leaves to choose from: somebody plans those that may do, which takes a
// second for ten schedules of 100,000 nodes.
constexpr size_t kMaxFoundNodes = size_t{1} << 20;

StepModel::Outcome evaluate(StepModel& model, const StepState& state) {
  return model.evaluate(state.choices.empty() ? model.keep_all() : state.choices);
}

}  // namespace

std::span<const Lever> levers() {
  return kLevers;
}

StepSolver::StepSolver(const StepProblem& problem, int64_t max_work)
    : problem_(problem), max_work_(max_work) {
  StepState whole{std::make_shared<const NeededNodes>(find_needed_nodes(problem.graph, problem.targets))};
  StepModel model = model_of(whole);
  const StepModel::Outcome outcome = evaluate(model, whole);
  found_.push_back({std::move(whole), outcome, {}});
}

StepModel StepSolver::model_of(const StepState& state) const {
  return {problem_.graph,           problem_.targets, *state.nodes,
          problem_.workspace_bytes, problem_.node_us, problem_.host};
}

// What each of the levers [first, last) did: the first one, then those that refine its states.
std::vector<LeverUse> StepSolver::uses_of(StepModel& model, const Found& from, const StepState& state,
                                          const StepModel::Outcome& then, size_t first, size_t last) const {
  std::vector<LeverUse> uses;
  StepState left = state;
  StepModel::Outcome with = then;
  for (size_t i = last; i-- > first;) {
    const Lever& lever = kLevers[i];
    StepModel::Outcome without = from.outcome;
    if (lever.refines) {
      StepState undone = lever.undo(left, model.keep_all());
      if (undone.choices == left.choices) continue;
      without = evaluate(model, undone);
      // What the lever before it did may help only together with this one.
      without.peak_bytes = std::min(without.peak_bytes, from.outcome.peak_bytes);
      left = std::move(undone);
    } else if (!uses.empty() && left.choices == model.keep_all()) {
      continue;
    }
    uses.push_back({lever.name, without.peak_bytes - with.peak_bytes, with.us - without.us});
    with = without;
  }
  uses.insert(uses.end(), from.levers.rbegin(), from.levers.rend());
  std::reverse(uses.begin(), uses.end());
  return uses;
}

void StepSolver::apply_next() {
  const size_t first = applied_++;
  const Found from = found_.back();
  const bool is_refined = applied_ < kLevers.size() && kLevers[applied_].refines;
  std::vector<StepState> states =
      is_refined && known_ ? *known_ : kLevers[first].apply(problem_, {&from.state, 1}, max_work_);
  if (is_refined) unrefined_ = std::make_shared<const std::vector<StepState>>(states);
  for (; applied_ < kLevers.size() && kLevers[applied_].refines; ++applied_) {
    std::vector<StepState> refined = kLevers[applied_].apply(problem_, states, max_work_);
    if (!refined.empty()) states = std::move(refined);
  }
  std::optional<StepModel> model;
  const NeededNodes* nodes = nullptr;  // of the model
  const size_t stride = 1 + states.size() * problem_.graph.nodes().size() / kMaxFoundNodes;
  for (size_t i = (states.size() + stride - 1) % stride; i < states.size(); i += stride) {  // the last, too
    StepState& state = states[i];
    if (state.nodes.get() != nodes) model.emplace(model_of(state));
    nodes = state.nodes.get();
    const StepModel::Outcome then = evaluate(*model, state);
    if (!then.is_valid || then.peak_bytes >= found_.back().outcome.peak_bytes) continue;
    std::vector<LeverUse> uses = uses_of(*model, from, state, then, first, applied_);
    found_.push_back({std::move(state), then, std::move(uses)});
  }
}

void StepSolver::take_found(StepSolver& other) {
  while (other.applied_ < kLevers.size()) other.apply_next();
  applied_ = kLevers.size();
  unrefined_ = other.unrefined_;
  found_.clear();
  for (const Found& found : other.found_) {
    if (found.outcome.host_bytes == 0 || found.outcome.host_bytes <= problem_.host.max_bytes)
      found_.push_back(found);
  }
}

size_t StepSolver::first_within(int64_t budget_bytes) {
  while (applied_ < kLevers.size() && found_.back().outcome.peak_bytes > budget_bytes) {
    apply_next();
  }
  const auto kept = std::partition_point(found_.begin(), found_.end(), [&](const Found& found) {
    return found.outcome.peak_bytes > budget_bytes;
  });
  return std::min(static_cast<size_t>(kept - found_.begin()), found_.size() - 1);
}

std::optional<Solution> StepSolver::at(size_t index) {
  while (applied_ < kLevers.size() && index >= found_.size()) apply_next();
  if (index >= found_.size()) return std::nullopt;
  const Found& found = found_[index];
  Solution solution{.schedule = {},
                    .step_bytes = found.outcome.peak_bytes,
                    .host_bytes = found.outcome.host_bytes,
                    .us = found.outcome.us,
                    .levers = found.levers};
  if (found.levers.empty()) return solution;
  StepModel model = model_of(found.state);
  evaluate(model, found.state);
  solution.schedule = model.schedule();
  return solution;
}

Solution StepSolver::solve(int64_t budget_bytes) {
  return *at(first_within(budget_bytes));
}

}  // namespace headroom
