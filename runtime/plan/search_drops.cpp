#include "runtime/plan/search_drops.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <utility>

namespace headroom {
namespace {

struct DropPlan {
  StepModel::Choices choices;
  StepModel::Outcome outcome;
};

// The plans of which no other takes as little in as little time.
class DropPlans {
 public:
  void offer(const StepModel::Choices& choices, const StepModel::Outcome& outcome) {
    const auto more = by_peak_.upper_bound(outcome.peak_bytes);
    if (more != by_peak_.begin() && std::prev(more)->second.outcome.us <= outcome.us) return;
    auto end = more;
    while (end != by_peak_.end() && end->second.outcome.us >= outcome.us) ++end;
    by_peak_.erase(more, end);
    by_peak_[outcome.peak_bytes] = {choices, outcome};
  }
  // The cheapest that keeps to the budget; if none does, the one that takes least.
  const DropPlan& best(int64_t budget_bytes) const {
    const auto more = by_peak_.upper_bound(budget_bytes);
    return more == by_peak_.begin() ? more->second : std::prev(more)->second;
  }
  // The one that takes least of those that do not keep to it; if all do, the one that takes most.
  const DropPlan& next(int64_t budget_bytes) const {
    const auto more = by_peak_.upper_bound(budget_bytes);
    return more == by_peak_.end() ? std::prev(more)->second : more->second;
  }
  int64_t least_bytes() const { return by_peak_.begin()->first; }
  const std::map<int64_t, DropPlan>& by_peak() const { return by_peak_; }

 private:
  std::map<int64_t, DropPlan> by_peak_;
};

// One search for all budgets: a plan that is tried on the way to one may be the best for another. Greedy
// choices, then what is not needed undone, then parts of it chosen anew as long as that gets cheaper.
class Search {
  // The first search of a budget takes so many steps at most.
  static constexpr int64_t kSteps = 256;

 public:
  Search(StepModel& model, int64_t max_work) : model_(model), max_work_(max_work) {}

  const DropPlans& run(std::span<const StepModel::Choices> known) {
    constexpr int kRungs = 24, kPatience = 200;
    const StepModel::Choices& all = model_.keep_all();
    const int64_t most = evaluate(all).peak_bytes;
    for (const StepModel::Choices& choices : known) evaluate(choices);
    StepModel::Choices choices = all;
    drop(choices, 0, 0);
    for (int rung = 0; rung < kRungs && !is_exhausted(); ++rung) {
      const int64_t least = plans_.least_bytes(), budget = least + (most - least) * rung / kRungs;
      restore(plans_.best(budget), budget);
      DropPlan plan = plans_.next(budget);
      plan.outcome = drop(plan.choices, budget, 0);
      if (plan.outcome.peak_bytes <= budget) restore(std::move(plan), budget);
    }
    for (int in_vain = 0; in_vain < kPatience && !is_exhausted(); ++in_vain) {
      const int64_t least = plans_.least_bytes();
      const auto part = static_cast<int64_t>(uniform() * static_cast<double>(most - least));
      if (improve(in_vain % 8 == 7 ? least - least / 64 : least + part)) in_vain = 0;
    }
    return plans_;
  }

 private:
  // Values that go together.
  struct Drop {
    std::vector<std::pair<int, Keep>> gaps;
    StepModel::Outcome outcome;
  };

  bool is_exhausted() const { return model_.work() > max_work_; }
  double uniform() { return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max()); }

  StepModel::Outcome evaluate(const StepModel::Choices& choices) {
    const StepModel::Outcome outcome = model_.evaluate(choices);
    if (outcome.is_valid) plans_.offer(choices, outcome);
    return outcome;
  }
  StepModel::Outcome evaluate_with(StepModel::Choices& choices, Drop& drop) {
    const auto swap_all = [&] {
      for (auto& [gap, keep] : drop.gaps) std::swap(choices[gap], keep);
    };
    swap_all();
    drop.outcome = evaluate(choices);
    swap_all();
    return drop.outcome;
  }

  // Values that wait at the peak, those of most bytes for their cost first.
  std::vector<StepModel::Gap> rank_waiting(const StepModel::Choices& choices, int64_t excess, double noise) {
    std::vector<StepModel::Gap> waiting = model_.waiting_at_peak(choices);
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i = 0; i < waiting.size(); ++i) {
      const double worth =
          static_cast<double>(std::min(waiting[i].bytes, excess)) / (waiting[i].repeat_us + 0.01);
      ranked.emplace_back(-worth * std::exp(noise * (uniform() - 0.5)), i);
    }
    std::ranges::sort(ranked);
    std::vector<StepModel::Gap> result;
    for (const auto& [worth, i] : ranked) result.push_back(waiting[i]);
    return result;
  }

  // Finds the next value to drop: the first that lowers the peak. If none does, because the peak occurs at
  // several moments or recomputing a value uses as much, the one that leaves least above the lowest peak so
  // far.
  Drop find_drop(StepModel::Choices& choices, const StepModel::Outcome& now, int64_t lowest,
                 int64_t budget_bytes, double noise) {
    constexpr size_t kTries = 48;
    const int64_t peak_bytes = now.peak_bytes, excess = peak_bytes - budget_bytes;
    std::vector<StepModel::Gap> waiting = rank_waiting(choices, excess, noise);
    // Drops several of many small values at once.
    Drop several;
    int64_t bytes = 0;
    for (const StepModel::Gap& value : waiting) {
      if (bytes >= excess / kSteps) break;
      if (choices[value.number] != Keep::kAlways || !model_.can_drop(value.number)) continue;
      several.gaps.emplace_back(value.number, Keep::kOnce);
      bytes += value.bytes;
    }
    if (several.gaps.size() > 1 && evaluate_with(choices, several).peak_bytes < peak_bytes) return several;

    if (waiting.size() > kTries) waiting.resize(kTries);
    const bool is_by_value = noise > 0 && uniform() < 0.5;
    std::vector<std::pair<int, Keep>> tries;
    for (size_t i = 0; i < 2 * waiting.size(); ++i) {
      const bool is_first = is_by_value ? i % 2 == 0 : i < waiting.size();
      const StepModel::Gap& value = waiting[is_by_value ? i / 2 : i % waiting.size()];
      const Keep keep = is_first ? Keep::kOnce : Keep::kNever;
      const bool is_more = keep > choices[value.number];
      if (is_more && model_.can_drop(value.number)) tries.emplace_back(value.number, keep);
    }
    Drop best;
    int64_t least_above = std::numeric_limits<int64_t>::max();
    for (const auto& one : tries) {
      Drop drop{{one}, {}};
      const StepModel::Outcome then = evaluate_with(choices, drop);
      if (then.peak_bytes < peak_bytes) return drop;
      if (!then.is_valid) continue;
      const int64_t above = model_.bytes_above(std::max(budget_bytes, lowest - 1));
      if (above >= least_above) continue;
      least_above = above;
      best = std::move(drop);
    }
    return best;
  }

  // Finds the next value to move to the host, among some that wait long for their bytes: the one with the
  // lowest cost per byte of the peak. Nullopt if none lowers it.
  Drop find_move(StepModel::Choices& choices, const StepModel::Outcome& now, int64_t budget_bytes,
                 double noise) {
    constexpr size_t kTries = 6;
    const int64_t excess = now.peak_bytes - budget_bytes;
    std::vector<std::pair<double, StepModel::Gap>> ranked;
    for (const StepModel::Gap& value : model_.waiting_at_peak(choices)) {
      if (!model_.can_go_to_host(value.number)) continue;
      const double worth = static_cast<double>(std::min(value.bytes, excess)) * value.us;
      ranked.emplace_back(-worth * std::exp(noise * (uniform() - 0.5)), value);
    }
    std::ranges::stable_sort(ranked, [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Drop> tries;
    Drop several;
    int64_t bytes = 0;
    for (const auto& [worth, value] : ranked) {
      if (bytes >= excess / kSteps) break;
      if (is_on_host(choices[value.number])) continue;
      several.gaps.emplace_back(value.number, Keep::kHost);
      bytes += value.bytes;
    }
    if (several.gaps.size() > 1) tries.push_back(std::move(several));
    for (size_t i = 0; i < std::min(kTries, ranked.size()); ++i) {
      const int gap = ranked[i].second.number;
      if (choices[gap] < Keep::kHost) tries.push_back({{{gap, Keep::kHost}}, {}});
      tries.push_back({{{gap, Keep::kHostAtOnce}}, {}});
    }
    Drop best;
    double least_cost = std::numeric_limits<double>::max();
    for (Drop& drop : tries) {
      const StepModel::Outcome then = evaluate_with(choices, drop);
      if (!then.is_valid || then.peak_bytes >= now.peak_bytes) continue;
      const double cost = cost_of(drop, now, budget_bytes);
      if (cost >= least_cost) continue;
      least_cost = cost;
      best = std::move(drop);
    }
    return best;
  }

  // Time for what the drop lowers the peak by, as far as the budget asks for it.
  static double cost_of(const Drop& drop, const StepModel::Outcome& now, int64_t budget_bytes) {
    const int64_t lowered = now.peak_bytes - std::max(budget_bytes, drop.outcome.peak_bytes);
    return (drop.outcome.us - now.us) / static_cast<double>(lowered);
  }

  // To drop and compute again, or to move to the host: what costs less.
  Drop find_best(StepModel::Choices& choices, const StepModel::Outcome& now, int64_t lowest,
                 int64_t budget_bytes, double noise) {
    if (!model_.has_host()) return find_drop(choices, now, lowest, budget_bytes, noise);
    Drop move = find_move(choices, now, budget_bytes, noise);
    // A move that costs nothing cannot be bettered.
    if (!move.gaps.empty() && move.outcome.us <= now.us) return move;
    model_.evaluate(choices);
    Drop drop = find_drop(choices, now, lowest, budget_bytes, noise);
    if (move.gaps.empty()) return drop;
    const bool lowers = !drop.gaps.empty() && drop.outcome.peak_bytes < now.peak_bytes;
    return lowers && cost_of(drop, now, budget_bytes) < cost_of(move, now, budget_bytes) ? drop : move;
  }

  // Drops values until the budget is kept, as long as that leads to a lower peak some drops later.
  StepModel::Outcome drop(StepModel::Choices& choices, int64_t budget_bytes, double noise) {
    constexpr int kPatience = 16;
    StepModel::Outcome outcome = evaluate(choices);
    int64_t lowest = outcome.peak_bytes;
    int in_vain = 0;
    while (outcome.is_valid && outcome.peak_bytes > budget_bytes && in_vain < kPatience && !is_exhausted()) {
      const Drop next = find_best(choices, outcome, lowest, budget_bytes, noise);
      if (next.gaps.empty()) break;
      for (const auto& [gap, keep] : next.gaps) choices[gap] = keep;
      const bool is_last = !model_.has_host() && next.outcome.peak_bytes < outcome.peak_bytes;
      outcome = is_last ? next.outcome : model_.evaluate(choices);
      in_vain = outcome.peak_bytes < lowest ? 0 : in_vain + 1;
      lowest = std::min(lowest, outcome.peak_bytes);
    }
    return outcome;
  }

  // Keeps values after all, the dearest first, where the budget allows it.
  void restore(DropPlan plan, int64_t budget_bytes) {
    model_.evaluate(plan.choices);
    std::vector<StepModel::Gap> repeats = model_.repeats();
    std::ranges::stable_sort(repeats, [](const auto& a, const auto& b) { return a.repeat_us > b.repeat_us; });
    std::vector<int64_t> most_at = model_.most_at();
    for (const StepModel::Gap& repeat : repeats) {
      if (is_exhausted()) break;
      Keep& choice = plan.choices[repeat.number];
      for (const Keep other : {Keep::kAlways, Keep::kOnce, Keep::kHost}) {
        const Keep before = choice;
        if (other >= before) break;
        if (other == Keep::kOnce && !model_.can_drop(repeat.number)) continue;
        if (other == Keep::kAlways && !model_.has_room_for(repeat.number, budget_bytes, most_at)) continue;
        choice = other;
        const StepModel::Outcome then = evaluate(plan.choices);
        if (then.is_valid && then.peak_bytes <= budget_bytes && then.us < plan.outcome.us) {
          plan.outcome = then;
          most_at = model_.most_at();
          break;
        }
        choice = before;
      }
    }
  }

  // Keeps the values of a part of the step, or some everywhere, and drops others for them; at times drops a
  // few first. Returns true if the result is better.
  bool improve(int64_t budget_bytes) {
    constexpr double kLeastShare = 0.005, kDropping = 0.1, kDropped = 8;
    const StepModel::Outcome before = plans_.best(budget_bytes).outcome;
    DropPlan plan = uniform() < 0.5 ? plans_.best(budget_bytes) : plans_.next(budget_bytes);
    const StepModel::Choices& all = model_.keep_all();
    const auto gaps = static_cast<double>(all.size());
    const bool drops = uniform() < kDropping;
    const bool is_part = !drops && uniform() < 0.5;
    const double share = drops ? uniform() * kDropped / gaps : std::pow(kLeastShare, uniform());
    const double begin = uniform() * (1 - share);
    for (size_t gap = 0; gap < all.size(); ++gap) {
      const double at = static_cast<double>(gap) / gaps;
      const bool is_chosen = is_part ? at >= begin && at < begin + share : uniform() < share;
      if (!is_chosen) continue;
      const bool is_dropped = drops && model_.can_drop(static_cast<int>(gap));
      plan.choices[gap] = !is_dropped ? all[gap] : uniform() < 0.5 ? Keep::kOnce : Keep::kNever;
      const bool may_go = drops && model_.can_go_to_host(static_cast<int>(gap));
      if (may_go && uniform() < 0.5) plan.choices[gap] = uniform() < 0.5 ? Keep::kHost : Keep::kHostAtOnce;
    }
    plan.outcome = drop(plan.choices, budget_bytes, 1);
    if (plan.outcome.peak_bytes <= budget_bytes) restore(std::move(plan), budget_bytes);
    const StepModel::Outcome then = plans_.best(budget_bytes).outcome;
    return before.peak_bytes > budget_bytes ? then.peak_bytes < before.peak_bytes : then.us < before.us;
  }

  StepModel& model_;
  const int64_t max_work_;
  DropPlans plans_;
  std::mt19937 random_{1};
};

}  // namespace

std::vector<StepModel::Choices> search_drops(StepModel& model, std::span<const StepModel::Choices> known,
                                             int64_t max_work) {
  Search search(model, model.work() + max_work);
  const std::map<int64_t, DropPlan>& plans = search.run(known).by_peak();
  std::vector<StepModel::Choices> result;
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan) result.push_back(plan->second.choices);
  return result;
}

}  // namespace headroom
