// Plans all replicas of a program for one budget, which each keeps to on its own device. Knows no command
// line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "answers/solve_program.h"

namespace headroom::solve {

// Plans each replica as keep_to_memory does. Its solutions are those of the slowest replica, as all others
// wait for it; bytes are those of the replica that takes the most.
class ReplicaSolver {
 public:
  // The programs of all replicas by rank; those of one graph are planned once. Throws as ProgramSolver does.
  ReplicaSolver(const std::vector<Program>& programs, const RunSetup& setup);

  MemorySolution solve(int64_t memory_bytes) const { return solve(memory_bytes, allowed_); }
  MemorySolution solve(int64_t memory_bytes, Allowed allowed) const;
  // The same for the least budget that all replicas keep.
  MemorySolution solve_least() const { return solve(0); }
  // The least budget on devices with room for any, where these have too little for the least; 0: none.
  int64_t least_on_larger_device() const;
  // What the process takes at its peak without a budget.
  int64_t bytes_without() const;

 private:
  std::vector<MemorySolution> solve_each(int64_t memory_bytes, Allowed allowed) const;

  std::vector<std::unique_ptr<const ProgramSolver>> solvers_;  // of graphs that differ
  Allowed allowed_;                                            // by the setup's options
};

// What a program would take with its optimizer sharded, where that is of use: it keeps a budget that `plain`
// does not keep, or takes less time in it, or its least budget is smaller, or as small for less time. Nothing
// otherwise.
std::optional<MemorySolution> better_with_shards(const MemorySolution& plain, MemorySolution sharded);

}  // namespace headroom::solve
