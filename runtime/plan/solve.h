// Keeps a training step to a budget of memory at the least cost in time: an order of its nodes, and values to
// drop and compute again or to keep in host memory, which give the same bits.
// Knows no device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/step_model.h"

namespace headroom {

struct StepProblem {
  const Graph& graph;
  const Targets& targets;
  std::span<const int64_t> workspace_bytes;  // by node
  std::span<const double> node_us;           // by node
  HostLink host = {};                        // none: nothing goes to host memory
};

// What levers have decided so far.
struct StepState {
  std::shared_ptr<const NeededNodes> nodes;  // the pure ones in the order to run
  // Empty: everything stays as long as the nodes need it. Belongs to that order.
  StepModel::Choices choices = {};
};

struct Lever {
  std::string_view name;
  std::string_view what;
  // Returns states that take less than the last of `before`, for all budgets: each takes less than the one
  // before it, at the least cost in time that it finds. `max_work`: how many nodes all tried schedules may
  // have together.
  std::vector<StepState> (*apply)(const StepProblem& problem, std::span<const StepState> before,
                                  int64_t max_work);
  // Instead: its states replace those of the lever before it, which it was given, as they cost no more.
  // Nothing where it cannot help.
  bool refines = false;
  // The state without what this lever did, if it refines.
  StepState (*undo)(StepState state, const StepModel::Choices& keep_all) = nullptr;
};
// In the order in which they are applied.
std::span<const Lever> levers();

struct LeverUse {
  std::string_view name;
  int64_t saved_bytes = 0;  // of the most that is live at once
  double added_us = 0;
};

struct Solution {
  NodeSchedule schedule;         // empty where the graph stays as it is
  int64_t step_bytes = 0;        // the most that is live at once, inputs included
  int64_t host_bytes = 0;        // the most that lies in host memory
  double us = 0;                 // of a step's nodes, and of waits for copies
  std::vector<LeverUse> levers;  // that changed something

  bool keeps(int64_t budget_bytes) const { return step_bytes <= budget_bytes; }
};

// The schedules found for a step, from the one without levers to the one that takes least: each takes less
// than the one before and no less time. One search serves all budgets. Deterministic.
class StepSolver {
 public:
  static constexpr int64_t kMaxWork = int64_t{1} << 24;  // a second

  // What the problem names must outlive this.
  explicit StepSolver(const StepProblem& problem, int64_t max_work = kMaxWork);

  // The cheapest schedule that keeps to the budget; if none does, the one that takes least. More memory never
  // costs more time.
  Solution solve(int64_t budget_bytes);

  // The first schedule that keeps to the budget; if none does, the last.
  size_t first_within(int64_t budget_bytes);
  // Takes over what the other has searched for so far, which must be a solver of the same problem, but for
  // its host: a lever that refines begins with it.
  void take_over(const StepSolver& other) { known_ = other.unrefined_; }
  // Searches for nothing more: takes over all that the other finds, a solver of the same problem but for the
  // node times of updates and for its host, which must have no less room. Schedules that need more of the
  // host than there is are left out.
  void take_found(StepSolver& other);
  // Nothing past the last.
  std::optional<Solution> at(size_t index);

 private:
  struct Found {
    StepState state;
    StepModel::Outcome outcome;
    std::vector<LeverUse> levers;
  };

  StepModel model_of(const StepState& state) const;
  void apply_next();
  std::vector<LeverUse> uses_of(StepModel& model, const Found& from, const StepState& state,
                                const StepModel::Outcome& then, size_t first, size_t last) const;

  const StepProblem problem_;
  const int64_t max_work_;
  size_t applied_ = 0;  // levers, as far as budgets asked for them
  std::vector<Found> found_;
  // What a search has found before another lever refined it; such states of another solver.
  std::shared_ptr<const std::vector<StepState>> unrefined_, known_;
};

}  // namespace headroom
