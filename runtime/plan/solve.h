// Keeps a training step to a budget of memory at the least cost in time: an order of its nodes and values to
// drop and compute again, which give the same bits. Each lever is a pass that knows nothing of the others.
// Knows no device.
#pragma once

#include <cstdint>
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
};

// What levers have decided so far.
struct StepState {
  NeededNodes nodes;  // the pure ones in the order to run
  // Empty: everything stays as long as the nodes need it. Belongs to that order.
  StepModel::Choices choices = {};
};

struct LeverEffort {
  int64_t budget_bytes = 0;
  // How many nodes all tried schedules may have together: some 10^7 a second.
  int64_t max_work = int64_t{1} << 23;
};

struct Lever {
  std::string_view name;
  std::string_view what;
  // Returns a state that takes less, if it finds one, and no more time than needed to keep to the budget.
  StepState (*apply)(const StepProblem& problem, StepState state, const LeverEffort& effort);
};
// In the order in which solve() applies them.
std::span<const Lever> levers();

struct LeverUse {
  std::string_view name;
  int64_t saved_bytes = 0;  // of the most that is live at once
  double added_us = 0;
};

struct Solution {
  NodeSchedule schedule;         // empty where the graph stays as it is
  int64_t step_bytes = 0;        // the most that is live at once, inputs included
  int64_t least_bytes = 0;       // no schedule of these nodes takes less
  double us = 0;                 // of a step's nodes
  std::vector<LeverUse> levers;  // that changed something

  bool keeps(int64_t budget_bytes) const { return step_bytes <= budget_bytes; }
};

// The cheapest schedule found that keeps to the budget; if none does, the one that takes the least.
// Deterministic.
Solution solve(const StepProblem& problem, const LeverEffort& effort);

}  // namespace headroom
