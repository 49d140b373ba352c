#include "runtime/plan/recompute.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

namespace headroom {
namespace {

// Greedy choices, then what is not needed undone, then parts of it chosen anew as long as that gets cheaper.
class Search {
 public:
  Search(StepModel& model, const LeverEffort& effort)
      : model_(model), effort_(effort), max_work_(effort.max_work) {}

  StepModel::Choices run() {
    StepModel::Choices choices = model_.keep_all();
    StepModel::Outcome outcome = drop(choices, effort_.budget_bytes, 0);
    if (!keeps(outcome)) {
      std::tie(choices, outcome) = find_least();
      if (!keeps(outcome)) return choices;
    }
    outcome = restore(choices, outcome, std::numeric_limits<size_t>::max());
    best_ = choices;
    best_outcome_ = outcome;
    constexpr int kPatience = 60;
    for (int in_vain = 0; in_vain < kPatience && !is_exhausted(); ++in_vain) {
      if (improve()) in_vain = 0;
    }
    return best_;
  }

 private:
  bool keeps(const StepModel::Outcome& outcome) const {
    return outcome.is_valid && outcome.peak_bytes <= effort_.budget_bytes;
  }
  bool is_exhausted() const { return model_.work() > max_work_; }
  double uniform() { return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max()); }

  // The least that greedy choices reach, whatever the budget: so each budget from there on is kept.
  std::pair<StepModel::Choices, StepModel::Outcome> find_least() {
    random_.seed(1);
    max_work_ = model_.work() + effort_.max_work;
    std::pair<StepModel::Choices, StepModel::Outcome> least;
    for (const double noise : {0.0, 0.5, 1.5, 3.0}) {
      StepModel::Choices choices = model_.keep_all();
      const StepModel::Outcome outcome = drop(choices, 0, noise);
      if (least.first.empty() || outcome.peak_bytes < least.second.peak_bytes) least = {choices, outcome};
    }
    max_work_ = model_.work() + effort_.max_work;
    return least;
  }

  // Drops values that wait at the peak, those of most bytes for their cost first, until the budget is kept or
  // nothing lowers the peak.
  StepModel::Outcome drop(StepModel::Choices& choices, int64_t budget_bytes, double noise) {
    constexpr int kTries = 48;
    StepModel::Outcome outcome = model_.evaluate(choices);
    while (outcome.is_valid && outcome.peak_bytes > budget_bytes && !is_exhausted()) {
      std::vector<StepModel::Waiting> waiting = model_.waiting_at_peak(choices);
      const int time = model_.peak_time();
      const int64_t excess = outcome.peak_bytes - budget_bytes;
      std::vector<std::pair<double, int>> ranked;
      for (const StepModel::Waiting& value : waiting) {
        const double worth = static_cast<double>(std::min(value.bytes, excess)) / (value.repeat_us + 0.01);
        ranked.emplace_back(-worth * std::exp(noise * (uniform() - 0.5)), value.gap);
      }
      std::sort(ranked.begin(), ranked.end());
      bool is_lower = false;
      std::pair<int, Keep> same{-1, Keep::kOnce};  // as high, but elsewhere
      int tries = 0;
      for (const auto& [worth, gap] : ranked) {
        if (tries++ == kTries) break;
        Keep& choice = choices[static_cast<size_t>(gap)];
        const Keep before = choice;
        for (const Keep other : {Keep::kOnce, Keep::kNever}) {
          if (other <= before || is_lower) continue;
          choice = other;
          const StepModel::Outcome then = model_.evaluate(choices);
          if (!then.is_valid) continue;
          if (then.peak_bytes < outcome.peak_bytes) {
            outcome = then;
            is_lower = true;
          } else if (then.peak_bytes == outcome.peak_bytes && model_.peak_time() != time && same.first < 0) {
            same = {gap, other};
          }
        }
        if (is_lower) break;
        choice = before;
      }
      if (!is_lower) {
        if (same.first < 0) break;
        choices[static_cast<size_t>(same.first)] = same.second;
        outcome = model_.evaluate(choices);
      }
    }
    return outcome;
  }

  // Keeps values after all, the dearest first, where the budget allows it.
  StepModel::Outcome restore(StepModel::Choices& choices, StepModel::Outcome outcome, size_t most) {
    model_.evaluate(choices);
    std::vector<StepModel::Repeat> repeats = model_.repeats();
    std::stable_sort(repeats.begin(), repeats.end(),
                     [](const auto& a, const auto& b) { return a.us > b.us; });
    for (const StepModel::Repeat& repeat : repeats) {
      if (most-- == 0 || is_exhausted()) break;
      Keep& choice = choices[static_cast<size_t>(repeat.gap)];
      for (const Keep other : {Keep::kAlways, Keep::kOnce}) {
        const Keep before = choice;
        if (other >= before) break;
        choice = other;
        const StepModel::Outcome then = model_.evaluate(choices);
        if (keeps(then) && then.us < outcome.us) {
          outcome = then;
          break;
        }
        choice = before;
      }
    }
    return outcome;
  }

  // Keeps the values of a part of the step, or some everywhere, and drops others for them. Whether that is
  // cheaper.
  bool improve() {
    constexpr size_t kRestored = 96;
    StepModel::Choices choices = best_;
    const StepModel::Choices& all = model_.keep_all();
    const double share = 0.03 + 0.3 * uniform();
    const bool is_part = uniform() < 0.5;
    const double begin = uniform() * (1 - share);
    for (size_t gap = 0; gap < choices.size(); ++gap) {
      const double at = static_cast<double>(gap) / static_cast<double>(choices.size());
      const bool is_chosen = is_part ? at >= begin && at < begin + share : uniform() < share;
      if (is_chosen) choices[gap] = all[gap];
    }
    StepModel::Outcome outcome = drop(choices, effort_.budget_bytes, 1.0);
    if (!keeps(outcome)) return false;
    outcome = restore(choices, outcome, kRestored);
    if (outcome.us >= best_outcome_.us) return false;
    best_ = choices;
    best_outcome_ = outcome;
    return true;
  }

  StepModel& model_;
  const LeverEffort& effort_;
  StepModel::Choices best_;
  StepModel::Outcome best_outcome_;
  int64_t max_work_ = 0;
  std::mt19937 random_{1};
};

}  // namespace

StepState recompute(const StepProblem& problem, StepState state, const LeverEffort& effort) {
  StepModel model(problem.graph, problem.targets, state.nodes, problem.workspace_bytes, problem.node_us);
  state.choices = Search(model, effort).run();
  return state;
}

}  // namespace headroom
