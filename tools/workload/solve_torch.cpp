#include "tools/workload/solve_torch.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/errors.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_changes.h"

namespace headroom {
namespace {

// Maximum number of passes over parts of the batch: a sum over more of them uses no less memory.
constexpr int64_t kMostPasses = 64;
// Parts of a loss: the logits of one of them are small beside all else.
constexpr int64_t kLossParts = 8;
// Number of searches for modules in the memory that is still kept with the earlier ones.
constexpr int kRounds = 3;
// Patterns of modules to leave out again, by way of trial.
constexpr size_t kMostPatterns = 6;
constexpr int64_t kMostTrials = 64;

class ProgramSearch {
 public:
  ProgramSearch(const TraceProgram& trace, const RunSetup& setup, bool is_recording, SplitBatch split,
                std::optional<int64_t> batch, std::string autocast)
      : trace_(trace),
        setup_(setup),
        is_recording_(is_recording),
        split_(split),
        autocast_(std::move(autocast)),
        batch_(batch) {}

  ProgramSolution solve() {
    plain_ = trace_batch(1, {});
    const TracedProgram& program = plain_;
    ProgramSolution solution;
    solution.model = model_ = program.model;
    solution.name = program.name;
    solution.normalizes_batches = program.normalizes_batches;
    uses_cache_ = program.uses_cache;
    head_ = program.head;
    solution.plain = solution.chosen = trials_.emplace_back(judge({}, program));
    if (!solution.plain.fits()) {
      // This change costs least of all.
      const ProgramTrial growing = with_growing_segments(solution.plain, program);
      if (growing.has_expandable_segments) trials_.push_back(growing);
      if (growing.fits()) {
        solution.chosen = growing;
      } else {
        choose(solution);
      }
    }
    solution.trials = std::move(trials_);
    return solution;
  }

 private:
  TracedProgram trace_batch(int64_t passes, const ProgramChanges& changes) const {
    return trace_(batch_ ? std::optional(*batch_ / passes) : std::nullopt, changes);
  }

  ProgramTrial judge(const ProgramChanges& changes, const TracedProgram& program) const {
    ProgramTrial trial{.changes = changes, .us = program.us_per_step};
    note(predict(program.trace, setup_), trial);
    return trial;
  }

  // Returns the trial with expandable segments if they help, otherwise the trial itself.
  ProgramTrial with_growing_segments(ProgramTrial trial, const TracedProgram& program) const {
    const auto strategy = with_expandable_segments(setup_.options.strategy);
    if (trial.fits() || !strategy || !is_of_torch(program.trace)) return trial;
    RunSetup growing = setup_;
    growing.options.strategy = *strategy;
    Prediction prediction = predict(program.trace, growing);
    if (!prediction.fits && !is_less(prediction, trial.prediction)) return trial;
    trial.has_expandable_segments = true;
    note(std::move(prediction), trial);
    return trial;
  }

  void note(Prediction prediction, ProgramTrial& trial) const {
    trial.prediction = std::move(prediction);
    if (!trial.prediction.margin_bytes) return;
    trial.least_memory_bytes =
        setup_.device.total_bytes - *trial.prediction.margin_bytes - others_bytes(setup_);
  }

  static Prediction predict(const Trace& trace, const RunSetup& setup) {
    return headroom::predict(traced_here(trace), setup);
  }
  static bool is_less(const Prediction& a, const Prediction& b) {
    return a.margin_bytes && (!b.margin_bytes || *a.margin_bytes > *b.margin_bytes);
  }

  // Changes that were tried before have a known result.
  ProgramTrial attempt(const ProgramChanges& changes) {
    for (const ProgramTrial& trial : trials_) {
      if (trial.changes == changes) return trial;
    }
    ProgramTrial trial{.changes = changes};
    if (std::ssize(trials_) >= kMostTrials) {
      trial.error = "too many tries";
      return trial;
    }
    try {
      const TracedProgram& program = trace_latest(changes);
      trial = with_growing_segments(judge(changes, program), program);
    } catch (const InvalidArgument& error) {
      trial.error = error.what();
    }
    return trials_.emplace_back(std::move(trial));
  }

  // The program with changes, which is kept until others are traced.
  const TracedProgram& trace_latest(const ProgramChanges& changes) {
    if (changes == ProgramChanges()) return plain_;
    if (latest_changes_ != changes) {
      latest_changes_.reset();
      latest_ = trace_batch(changes.passes, changes);
      latest_changes_ = changes;
    }
    return latest_;
  }

  void choose(ProgramSolution& solution) {
    const ProgramChanges free = with_free_changes(solution.plain);
    std::optional<ProgramTrial> same = with_same_batch(free), split;
    const bool may_split = split_ != SplitBatch::kNever;
    if (may_split && !head_.empty() && !attempt(free).fits()) {
      const std::optional<ProgramTrial> parts = with_loss_in_parts(free);
      if (parts && (!same || parts->us < same->us)) same = parts;
    }
    if (may_split && batch_.value_or(0) > 1) split = with_parts(free);
    // Parts change no result beyond rounding, unless batches are normalized.
    const bool may_lead = !split || !solution.normalizes_batches || split_ == SplitBatch::kCheaper;
    if (same && split && split->us < same->us) {
      solution.chosen = may_lead ? *split : *same;
      if (!may_lead) solution.split = split;
    } else if (same) {
      solution.chosen = *same;
    } else if (split) {
      solution.chosen = *split;
    } else {
      solution.chosen = *std::ranges::min_element(trials_, takes_less);
    }
  }

  static bool is_same(const ProgramTrial& a, const ProgramTrial& b) {
    return a.us == b.us && a.prediction.requested_bytes == b.prediction.requested_bytes;
  }

  static bool takes_less(const ProgramTrial& a, const ProgramTrial& b) {
    const auto least = [](const ProgramTrial& trial) {
      return trial.error.empty() && trial.least_memory_bytes > 0 ? trial.least_memory_bytes : INT64_MAX;
    };
    return least(a) < least(b);
  }

  // Adds the changes that cost no time.
  ProgramChanges with_free_changes(const ProgramTrial& plain) {
    ProgramChanges free;
    if (is_recording_) return free;
    if (!autocast_.empty()) {
      ProgramChanges cast = free;
      cast.autocast = autocast_;
      const ProgramTrial trial = attempt(cast);
      // A program that has it already takes the same.
      if (trial.error.empty() && trial.prediction.requested_bytes < plain.prediction.requested_bytes) {
        free = cast;
      }
    }
    free.uncached = uses_cache_;
    const ProgramTrial unfused = attempt(free);
    free.fused = true;
    const ProgramTrial fused = attempt(free);
    // A program that has it already, or gains nothing by it, takes the same.
    if (!fused.error.empty() || is_same(fused, unfused)) free.fused = false;
    return free;
  }

  // Removes changes without which it also fits the budget, and is no slower.
  ProgramTrial trimmed(const ProgramTrial& trial) {
    constexpr double kNoSlower = 1.002;
    ProgramTrial best = trial;
    const auto attempt_less = [&](const ProgramChanges& less) {
      const ProgramTrial without = attempt(less);
      if (without.fits() && without.us <= kNoSlower * best.us) best = without;
    };
    ProgramChanges less = best.changes;
    less.fused = false;
    attempt_less(less);
    less = best.changes;
    less.uncached = false;
    if (best.changes.checkpoints.empty()) attempt_less(less);
    return best;
  }

  ProgramChanges with_modules(ProgramChanges changes, size_t count) const {
    changes.checkpoints = first_checkpoints(order_, count);
    changes.model = changes.checkpoints.empty() ? "" : model_;
    return changes;
  }

  // Adds to the order what a program with all modules so far still keeps; false where that is nothing.
  bool extend_order(const ProgramChanges& changes) {
    std::vector<std::string> candidates;
    try {
      const TracedProgram& program = trace_latest(changes);
      candidates = checkpoint_order(program.trace, program.modules);
    } catch (const InvalidArgument&) {
      return false;
    }
    const size_t before = order_.size();
    for (std::string& candidate : candidates) {
      const bool is_known = std::ranges::find(order_, candidate) != order_.end();
      if (!is_known) order_.push_back(std::move(candidate));
    }
    return order_.size() > before;
  }

  // The fewest modules that keep the budget with these changes; nothing where all of them do not.
  std::optional<ProgramTrial> with_fewest_modules(const ProgramChanges& changes) {
    const ProgramTrial none = attempt(changes);
    if (none.fits()) return none;
    bool fits = false;
    for (int round = 0; round < kRounds && !fits; ++round) {
      if (!extend_order(with_modules(changes, order_.size())) && round > 0) break;
      fits = attempt(with_modules(changes, order_.size())).fits();
    }
    if (!fits) return std::nullopt;
    const int64_t count = edge_between(std::ssize(order_), 0, [&](int64_t modules) {
      return attempt(with_modules(changes, static_cast<size_t>(modules))).fits();
    });
    return without_needless(attempt(with_modules(changes, static_cast<size_t>(count))));
  }

  // Restores equal modules if that is faster and also fits the budget.
  ProgramTrial without_needless(ProgramTrial best) {
    std::vector<std::string> patterns;
    for (const std::string& path : best.changes.checkpoints) {
      std::string pattern = pattern_of(path).first;
      if (std::ranges::find(patterns, pattern) == patterns.end()) {
        patterns.push_back(std::move(pattern));
      }
    }
    patterns.resize(std::min(patterns.size(), kMostPatterns));
    for (const std::string& pattern : patterns) {
      ProgramChanges less = best.changes;
      std::erase_if(less.checkpoints,
                    [&](const std::string& path) { return pattern_of(path).first == pattern; });
      if (less.checkpoints.empty()) continue;
      const ProgramTrial without = attempt(less);
      if (without.fits() && without.us < best.us) best = without;
    }
    return best;
  }

  std::optional<ProgramTrial> with_same_batch(const ProgramChanges& free) {
    if (const ProgramTrial trial = attempt(free); trial.fits()) return trimmed(trial);
    std::optional<ProgramTrial> best = with_fewest_modules(free);
    if (!best && !is_recording_) {
      ProgramChanges offloaded = free;
      offloaded.offload = true;
      best = with_fewest_modules(offloaded);
    }
    return best ? std::optional(trimmed(*best)) : std::nullopt;
  }

  // The fewest modules with the loss in parts; nothing where the logits are not what counts.
  std::optional<ProgramTrial> with_loss_in_parts(const ProgramChanges& free) {
    ProgramChanges changes = free;
    changes.loss_parts = kLossParts;
    changes.head = head_;
    if (!takes_less(attempt(changes), attempt(free))) return std::nullopt;
    const std::optional<ProgramTrial> best = with_fewest_modules(changes);
    return best ? std::optional(trimmed(*best)) : std::nullopt;
  }

  std::vector<int64_t> parts() const {
    std::vector<int64_t> found;
    for (int64_t passes = 2; passes <= std::min(*batch_, kMostPasses); ++passes) {
      if (*batch_ % passes == 0) found.push_back(passes);
    }
    return found;
  }

  // The fewest parts that keep the budget; with all modules run again, where parts alone do not.
  std::optional<ProgramTrial> with_parts(const ProgramChanges& free) {
    const std::vector<int64_t> choices = parts();
    if (choices.empty()) return std::nullopt;
    const auto with_passes = [&](int64_t choice, const ProgramChanges& changes) {
      ProgramChanges changed = changes;
      changed.passes = choices[static_cast<size_t>(choice)];
      return changed;
    };
    const auto last = std::ssize(choices) - 1;
    const auto fewest = [&](const ProgramChanges& changes) {
      return edge_between(last, -1,
                          [&](int64_t choice) { return attempt(with_passes(choice, changes)).fits(); });
    };
    if (attempt(with_passes(last, free)).fits()) {
      return trimmed(attempt(with_passes(fewest(free), free)));
    }
    ProgramChanges all = with_modules(free, order_.size());
    for (const bool offload : {false, true}) {
      all.offload = offload;
      if (!attempt(with_passes(last, all)).fits()) continue;
      ProgramChanges fewest_parts = with_passes(fewest(all), all);
      fewest_parts.checkpoints.clear();
      fewest_parts.model.clear();
      const std::optional<ProgramTrial> found = with_fewest_modules(fewest_parts);
      return trimmed(found ? *found : attempt(with_passes(fewest(all), all)));
    }
    return std::nullopt;
  }

  const TraceProgram& trace_;
  const RunSetup& setup_;
  const bool is_recording_;
  const SplitBatch split_;
  const std::string autocast_;
  const std::optional<int64_t> batch_;
  std::string model_;
  bool uses_cache_ = false;
  std::string head_;
  std::vector<ProgramTrial> trials_;
  std::vector<std::string> order_;
  TracedProgram plain_;  // without changes
  TracedProgram latest_;
  std::optional<ProgramChanges> latest_changes_;  // changes of latest_; nullopt: there is none
};

}  // namespace

ProgramSolution solve_torch(const TraceProgram& trace, const RunSetup& setup, SplitBatch split,
                            std::optional<int64_t> batch, const std::string& autocast) {
  return ProgramSearch(trace, setup, false, split, batch, autocast).solve();
}

ProgramSolution solve_recording(const TraceProgram& trace, const RunSetup& setup) {
  return ProgramSearch(trace, setup, true, SplitBatch::kNever, std::nullopt, {}).solve();
}

}  // namespace headroom
