// Keeps a program to a budget of memory, everything that its process takes on the device, at the least cost
// in time. Computes nothing and touches no byte.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "answers/memory_solution.h"
#include "answers/variant.h"

namespace headroom {

// The variants of a program on its device, or of all replicas of one, ready to be planned for budgets. A
// result does not depend on the budgets that were asked for before.
class Solver {
 public:
  // Plans with the setup's plan mode and strategy; its limit is replaced by the budget. If there is no
  // `costs_of`, nodes have the workspaces of the CPU's kernels and the times of the device's model.
  // `replicas` of the program share the host. Throws InvalidArgument for a program on several devices.
  Solver(Program program, const RunSetup& setup, NodeCostsOf costs_of = {}, int replicas = 1);
  // The programs of all replicas by rank; those of one graph are planned once. A solution is that of the
  // slowest, as all others wait for it; its bytes are those of the replica that takes most.
  Solver(std::span<const Program> ranks, const RunSetup& setup);

  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // The cheapest point of any variant that is found to fit in a budget; changes bits only as allowed: by the
  // setup's options where nothing is given. More memory never costs more time, as long as both
  // solutions keep all bits or both may split. Its plans have passed find_fault.
  MemorySolution solve(int64_t memory_bytes) const;
  MemorySolution solve(int64_t memory_bytes, SplitBatch split, bool compresses_norms = false) const;
  // Solves for the least budget that is enough.
  MemorySolution solve_least() const { return solve(0); }
  // The least budget on a device with room for any, where this one has too little for the least; 0: none.
  int64_t least_on_larger_device() const;
  // Return the peak of the process without a budget, and the time of its step.
  int64_t bytes_without() const;
  double us_without() const { return plain_.front()->us_without(); }

 private:
  struct Best;

  Solver(std::vector<Program> programs, RunSetup setup, NodeCostsOf costs_of, const HostLink& host);
  std::vector<Best> find_all(int64_t memory_bytes, SplitBatch split, bool compresses_norms) const;
  static bool all_fit(const std::vector<Best>& all);
  static int64_t least_of(const std::vector<Best>& all);
  static MemorySolution of_slowest(const std::vector<Best>& all);
  Best find(Variant& plain, int64_t memory_bytes, SplitBatch split, bool compresses_norms) const;
  bool try_with_states(Variant& base, int64_t memory_bytes, Best& best) const;
  void try_parts(Variant& base, int64_t memory_bytes, Best& best) const;
  // A variant with one more change, which is made once; null where the base cannot be changed so.
  template <class Make>
  Variant* changed(Variant& base, std::string_view lever, int amount, const Make& make) const;

  const RunSetup setup_;
  const NodeCostsOf costs_of_;
  const HostLink host_;
  std::vector<std::unique_ptr<Variant>> plain_;  // variants of graphs that differ
  mutable std::map<std::tuple<const Variant*, std::string_view, int>, std::unique_ptr<Variant>> variants_;
};

// The programs with their graphs rewritten for the memory of the options, if these name one, whether they fit
// or not; Program::memory says. Replicas of one graph share it.
std::vector<Program> keep_to_memory(std::vector<Program> programs, const RuntimeOptions& options);

// Returns why one of the programs does not fit in its budget, with the least budget that is enough; nothing
// if all fit.
std::optional<MemoryTooSmall> find_refusal(const std::vector<Program>& programs);
// Throws it.
void require_fit(const std::vector<Program>& programs);

}  // namespace headroom
