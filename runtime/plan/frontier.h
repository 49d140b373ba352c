// The ways to run a training step that give the same bits, from the fastest to the one that takes least
// memory: an order of its nodes, and values to drop and compute again or to keep in host memory.
// Knows no device.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/step_model.h"

namespace headroom {

// A way to make a step or a program take less memory, and its effect.
struct Lever {
  std::string_view name, what;  // "split-batch", and what it does
  int64_t saved_bytes = 0;      // at the peak
  double added_us = 0;
  // A change of the graph, which comes before any schedule; empty for a lever of schedules.
  std::function<void(Graph&, std::span<const Targets>)> apply = {};
  int amount = 1;            // parts, or states
  std::string text = {};     // "in 4 parts"; empty: nothing that a headline says
  std::string label = {};    // "4", for a column of a table
  std::string bits = {};     // how it changes the bits of the weights; empty if it does not
  bool keeps_nodes = false;  // every node computes the same, so that any schedule fits
};

// A way to run the step: `us` is the time of its nodes, and of waits for copies.
struct StepPoint : StepModel::Outcome {
  std::shared_ptr<const NeededNodes> nodes;  // the pure ones in the order to run
  StepModel::Choices choices = {};           // for that order; empty: everything stays
  // Known of a point that Frontier::at() returns.
  NodeSchedule schedule = {};      // empty where the graph stays as it is
  std::vector<Lever> levers = {};  // that changed something
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
  const StepModel::Outcome& outcome(size_t index) const { return found_[index]; }
  StepPoint at(size_t index) const;
  // The cheapest point within these bytes; if there is none, the one that takes least.
  StepPoint solve(int64_t step_bytes);

 private:
  StepModel model_of(const NeededNodes& nodes, const HostLink& host) const;
  void add(const std::shared_ptr<const NeededNodes>& nodes, std::span<const StepModel::Choices> all);
  void search_further();
  void search_drops();
  std::vector<Lever> uses_of(StepModel& model, const StepPoint& found) const;

  enum class Stage : uint8_t { kAsItIs, kOrdered, kSearched };

  const Graph& graph_;
  const Targets& targets_;
  const NodeCosts costs_;
  const HostLink host_;
  const int64_t max_work_;
  Stage stage_ = Stage::kAsItIs;
  std::vector<StepPoint> found_;  // by rising time
  size_t unsearched_ = 1;         // so many first points come before the search for drops
};

}  // namespace headroom
