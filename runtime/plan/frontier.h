// The ways to run a training step that give the same bits, from the fastest to the one that takes least
// memory: an order of its nodes, and values to drop and compute again or to keep in host memory.
// Knows no device.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan/step_model.h"

namespace headroom {

// The effect of a lever on a step or a program.
struct LeverUse {
  std::string_view name, what;
  int64_t saved_bytes = 0;  // at the peak
  double added_us = 0;
};

// A way to run the step.
struct StepPoint {
  NodeSchedule schedule = {};         // empty where the graph stays as it is
  int64_t step_bytes = 0;             // the most that is live at once, inputs included
  int64_t host_bytes = 0;             // the most that lies in host memory
  double us = 0;                      // time of a step's nodes, and of waits for copies
  std::vector<LeverUse> levers = {};  // that changed something
};

// One search serves all budgets, and goes no further than they ask for. Deterministic: what a budget gives
// does not depend on those before it.
class Frontier {
 public:
  static constexpr int64_t kMaxWork = int64_t{1} << 24;  // a second
  static constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

  // Graph and targets must outlive this. With no link, nothing goes to host memory. `max_work`: how many
  // nodes all tried schedules may have together.
  Frontier(const Graph& graph, const Targets& targets, NodeCosts costs, const HostLink& host = {},
           int64_t max_work = kMaxWork);

  const NodeCosts& costs() const { return costs_; }

  // The cheapest point that takes no more than these bytes at once, at or after `first` in the order of their
  // time; nothing when none does.
  std::optional<size_t> next_within(int64_t step_bytes, int64_t host_bytes = kAnyBytes, size_t first = 0);
  // All points with no more than that in host memory, those first that take least.
  std::vector<size_t> least_first(int64_t host_bytes = kAnyBytes);
  int64_t step_bytes(size_t index) const { return found_[index].outcome.peak_bytes; }
  int64_t host_bytes(size_t index) const { return found_[index].outcome.host_bytes; }
  StepPoint at(size_t index) const;
  // The cheapest point within these bytes; if there is none, the one that takes least.
  StepPoint solve(int64_t step_bytes);

 private:
  struct Found {
    std::shared_ptr<const NeededNodes> nodes;  // the pure ones in the order to run
    StepModel::Choices choices;                // for that order; empty: everything stays
    StepModel::Outcome outcome;
  };

  StepModel model_of(const NeededNodes& nodes, const HostLink& host) const;
  void add(const std::shared_ptr<const NeededNodes>& nodes, std::span<const StepModel::Choices> all);
  void search_further();
  void search_drops();
  std::vector<LeverUse> uses_of(StepModel& model, const Found& found) const;

  enum class Stage : uint8_t { kAsItIs, kOrdered, kSearched };

  const Graph& graph_;
  const Targets& targets_;
  const NodeCosts costs_;
  const HostLink host_;
  const int64_t max_work_;
  Stage stage_ = Stage::kAsItIs;
  std::vector<Found> found_;  // by rising time
  size_t unsearched_ = 1;     // so many first points come before the search for drops
};

}  // namespace headroom
