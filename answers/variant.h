// A variant of a program on its device: its step's frontier, whose points are planned and played. Computes
// nothing and touches no byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers/memory_solution.h"
#include "answers/program.h"
#include "runtime/app/setup.h"
#include "runtime/plan/frontier.h"
#include "runtime/plan/step_cost.h"

namespace headroom {

// The figures of a profile as real kernels reach them.
DeviceSpeed speed_of(const DeviceProfile& profile);

// Returns the link over which values of the setup's programs may move to host memory, at the speed of its
// device: none on a CPU, if the options allow no host memory, and for a plan without a single arena, which
// queues nodes one at a time or never reuses the memory of copied values. `replicas` share the host's memory.
HostLink host_link_of(const RunSetup& setup, int replicas = 1);

using NodeCostsOf = std::function<NodeCosts(const Graph& graph)>;

class Variant {
 public:
  // The program as it is, planned with the setup's plan mode and strategy; its limit is replaced by the
  // budget. `setup` and `costs_of` must outlive this. Throws InvalidArgument for a program on several
  // devices.
  Variant(Program program, const RunSetup& setup, const NodeCostsOf& costs_of, const HostLink& host);
  // Another variant, which must outlive this, with one more change.
  Variant(Variant& base, Lever change);

  // About what a step takes at least; its kernels need not be made for that.
  double lower_bound_us() const { return lower_bound_us_; }
  const Program& program() const { return program_; }
  const HostLink& host() const { return host_; }
  // The peak of the process without a budget, the time of a step then, and the plan's part of the peak.
  int64_t bytes_without() { return prepare().bytes_without_; }
  double us_without() { return prepare().us_without_; }
  int64_t planned_bytes_without() { return peak_bytes(prepare().whole_); }

  // The cheapest point that is found to fit in a budget. Where none does, the one that takes least, with the
  // least budget in which it fits.
  MemorySolution solve(int64_t memory_bytes);
  // The program without a lever, played in a budget.
  MemorySolution as_it_is(int64_t memory_bytes) { return prepare().solution_at(0, memory_bytes); }
  // The largest buffer of a step.
  int64_t largest_buffer_bytes();
  // The first fault of the plans of a solution of this variant, see find_fault.
  std::optional<std::string> find_plan_fault(const MemorySolution& solution) const;

 private:
  static int64_t peak_bytes(const Program& planned) { return planned.plans->front().peak_bytes; }
  Variant& prepare();
  std::shared_ptr<const MemorySolution> plan(size_t point);
  std::vector<int64_t> workspaces_of(const NodeSchedule& schedule) const;
  MemorySolution solution_at(size_t point, int64_t memory_bytes);
  const MemorySolution& least();
  std::vector<Lever> changes();
  int64_t sum_fixed_bytes() const;
  std::optional<int64_t> bytes_without_limit() const;
  int64_t arena_bytes(int64_t step_bytes) const;
  int64_t pages_left(int64_t memory_bytes) const;
  int64_t arena_bytes(const Program& planned) const;
  bool has_room_on_host(const Program& planned) const;

  const RunSetup& setup_;
  const NodeCostsOf& costs_of_;
  Variant* const base_ = nullptr;
  const Lever change_ = {};
  const Program program_;
  HostLink host_;
  double lower_bound_us_ = 0, added_us_ = 0;

  // Known once it is asked for.
  std::shared_ptr<Frontier> frontier_;  // variants whose nodes compute the same share it
  Program whole_;                       // planned without a budget
  int64_t fixed_bytes_ = 0;             // memory of the process beside its sessions' arena
  int64_t other_bytes_ = 0;             // the most that a session but the first takes
  int64_t bytes_without_ = 0;
  double us_without_ = 0;
  std::map<size_t, std::shared_ptr<const MemorySolution>> planned_;  // by point, before they are played
  std::optional<MemorySolution> least_;
  size_t least_point_ = 0;
};

}  // namespace headroom
