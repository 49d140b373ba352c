#include "tools/solve/replica_solver.h"

#include <algorithm>
#include <utility>

namespace headroom::solve {
namespace {

// The solution of all replicas for one budget.
MemorySolution merged(std::vector<MemorySolution> solutions) {
  const auto slowest = std::max_element(
      solutions.begin(), solutions.end(), [](const MemorySolution& a, const MemorySolution& b) {
        return std::pair(a.us, a.process_bytes) < std::pair(b.us, b.process_bytes);
      });
  int64_t process_bytes = 0, process_bytes_without = 0, host_bytes = 0;
  for (const MemorySolution& solution : solutions) {
    process_bytes = std::max(process_bytes, solution.process_bytes);
    process_bytes_without = std::max(process_bytes_without, solution.process_bytes_without);
    host_bytes = std::max(host_bytes, solution.host_bytes);
  }
  MemorySolution solution = std::move(*slowest);
  solution.process_bytes = process_bytes;
  solution.process_bytes_without = process_bytes_without;
  solution.host_bytes = host_bytes;
  return solution;
}

// The least budget that all replicas keep; 0 when one of them keeps none.
int64_t least_of(const std::vector<MemorySolution>& solutions) {
  int64_t least = 0;
  for (const MemorySolution& solution : solutions) {
    if (solution.keeps) continue;
    if (solution.least_memory_bytes == 0) return 0;
    least = std::max(least, solution.least_memory_bytes);
  }
  return least;
}

bool all_keep(const std::vector<MemorySolution>& solutions) {
  return std::all_of(solutions.begin(), solutions.end(),
                     [](const MemorySolution& solution) { return solution.keeps; });
}

}  // namespace

ReplicaSolver::ReplicaSolver(const std::vector<Program>& programs, const RunSetup& setup)
    : allowed_(allowed_by(setup.options)) {
  const Graph* before = nullptr;
  for (const Program& program : programs) {
    const Graph* const graph = program.graph.get();
    if (graph == std::exchange(before, graph)) continue;
    solvers_.push_back(std::make_unique<const ProgramSolver>(program, setup, NodeCostsOf{},
                                                             static_cast<int>(programs.size())));
  }
}

std::vector<MemorySolution> ReplicaSolver::solve_each(int64_t memory_bytes, Allowed allowed) const {
  std::vector<MemorySolution> solutions;
  solutions.reserve(solvers_.size());
  for (const auto& solver : solvers_) solutions.push_back(solver->solve(memory_bytes, allowed));
  return solutions;
}

MemorySolution ReplicaSolver::solve(int64_t memory_bytes, Allowed allowed) const {
  std::vector<MemorySolution> solutions = solve_each(memory_bytes, allowed);
  if (all_keep(solutions) || solutions.size() == 1) return merged(std::move(solutions));
  // What it costs to keep the least budget of all.
  const int64_t least_bytes = least_of(solutions), asked_bytes = solutions.front().memory_bytes;
  if (least_bytes > 0) solutions = solve_each(least_bytes, allowed);
  MemorySolution solution = merged(std::move(solutions));
  solution.memory_bytes = asked_bytes;
  solution.keeps = false;
  solution.least_memory_bytes = least_bytes;
  return solution;
}

int64_t ReplicaSolver::least_on_larger_device() const {
  int64_t least = 0;
  for (const auto& solver : solvers_) {
    const int64_t bytes = solver->least_on_larger_device();
    if (bytes == 0) return 0;
    least = std::max(least, bytes);
  }
  return least;
}

int64_t ReplicaSolver::bytes_without() const {
  int64_t bytes = 0;
  for (const auto& solver : solvers_) bytes = std::max(bytes, solver->bytes_without());
  return bytes;
}

std::optional<MemorySolution> better_with_shards(const MemorySolution& plain, MemorySolution sharded) {
  const bool is_as_little_for_less =
      sharded.least_memory_bytes == plain.least_memory_bytes && sharded.us < plain.us;
  const bool is_less =
      sharded.least_memory_bytes > 0 && (plain.least_memory_bytes == 0 || is_as_little_for_less ||
                                         sharded.least_memory_bytes < plain.least_memory_bytes);
  const bool keeps_more_bits = keeps_bits(sharded) && !keeps_bits(plain);
  const bool is_better =
      sharded.keeps ? !plain.keeps || sharded.us < plain.us || keeps_more_bits : !plain.keeps && is_less;
  return is_better ? std::optional(std::move(sharded)) : std::nullopt;
}

}  // namespace headroom::solve
