// Plans a program for a budget of memory: everything that its process takes on the device. Computes nothing
// and touches no byte.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "answers/memory_solution.h"
#include "answers/play.h"
#include "answers/program.h"
#include "runtime/plan/solve.h"
#include "runtime/plan/step_cost.h"

namespace headroom {

// The figures of a profile as real kernels reach them.
DeviceSpeed speed_of(const DeviceProfile& profile);

// How values of the setup's programs may go to host memory, at the speed of its device: not at all on a CPU,
// where the options allow none of it, and with a plan without one arena, which queues one node after the
// other or never reuses the memory of what was copied. `replicas` share the host's memory.
HostLink host_link_of(const RunSetup& setup, int replicas = 1);

// What may be done that changes bits.
struct Allowed {
  SplitBatch split_batch = SplitBatch::kNever;
  bool compress_norms = false;
  bool nothing() const { return split_batch == SplitBatch::kNever && !compress_norms; }
};
Allowed allowed_by(const RuntimeOptions& options);

// What the kernels of a graph take, by node.
struct NodeCosts {
  std::vector<int64_t> workspace_bytes;
  std::vector<double> us;
};
using NodeCostsOf = std::function<NodeCosts(const Graph& graph)>;

// A program on its device, ready to be planned for budgets. What a budget gives does not depend on those that
// were asked for before.
class ProgramSolver {
 public:
  // Plans with the setup's plan mode and strategy; its limit is replaced by the budget. Without `costs_of`
  // nodes take the workspaces of the CPU's kernels and the time that the model of the device gives them.
  // `replicas` of the program share the host. Throws InvalidArgument for a program on several devices.
  ProgramSolver(Program program, RunSetup setup, NodeCostsOf costs_of = {}, int replicas = 1);

  ProgramSolver(const ProgramSolver&) = delete;
  ProgramSolver& operator=(const ProgramSolver&) = delete;

  // The cheapest way to keep to a budget that is found. Splits the loss or the batch and compresses norms
  // where that is allowed; the setup's options say so where nothing is given. More memory never costs more
  // time, as long as both solutions keep all bits or both may split.
  MemorySolution solve(int64_t memory_bytes) const;
  MemorySolution solve(int64_t memory_bytes, Allowed allowed) const;
  // The same for the least budget that is kept.
  MemorySolution solve_least() const;
  // The least budget on a device with room for any, where this one has too little for the least; 0: none.
  int64_t least_on_larger_device() const;
  // What the process takes at its peak without a budget, and the time of a step then.
  int64_t bytes_without() const { return bytes_without_; }
  double us_without() const { return us_without_; }

 private:
  // A schedule, with the plans of the rewritten program.
  struct Candidate {
    Solution step;
    std::shared_ptr<const PlannedProgram> planned;
    int64_t planned_bytes() const;  // of the first session
  };
  // Into how many parts a program is split: one of both is 1.
  struct Parts {
    int batch = 1, loss = 1;
    auto operator<=>(const Parts&) const = default;
  };
  // A program in parts, and the graph of one of the batch.
  struct Split {
    std::shared_ptr<const Graph> part;
    Program program;
    double us = 0;                          // of a step without levers, about
    std::unique_ptr<ProgramSolver> solver;  // once it was asked for
  };

  // The program with some states of its optimizer in host memory.
  struct StatesOnHost {
    std::vector<int> states;                // variables
    int64_t bytes = 0;                      // of their blocks
    double added_us = 0;                    // of their updates
    std::unique_ptr<ProgramSolver> solver;  // once it was asked for
  };

  // Those of the program are not worked out again.
  NodeCostsOf known_costs() const;
  MemorySolution find(int64_t memory_bytes, Allowed allowed) const;
  MemorySolution find_with_parts(int64_t memory_bytes, SplitBatch allowed) const;
  // Of a budget that is not kept, where `least` names the least that is.
  MemorySolution refused(int64_t memory_bytes, MemorySolution least, Allowed allowed) const;
  MemorySolution solve_unsplit(int64_t memory_bytes) const;
  // With all states where they are.
  MemorySolution solve_values(int64_t memory_bytes) const;
  MemorySolution solve_behind(size_t index, int64_t memory_bytes) const;
  // The same program with norms in 8 bits; null where it has none that can be.
  const ProgramSolver* compressed() const;
  // From the least bytes on.
  std::vector<StatesOnHost>& states_on_host() const;
  const ProgramSolver& solver_of(StatesOnHost& moved) const;
  MemorySolution with_states(MemorySolution solution, const StatesOnHost& moved) const;
  // The same program with all values on the device.
  const ProgramSolver& without_host() const;
  // The schedule that needs the least memory, and what it needs.
  struct Least {
    size_t index;
    MemorySolution solution;
  };
  const Least& least() const;
  // Of a step's nodes without levers, by node of the graph.
  static double step_us(const Program& program, std::span<const double> node_us);
  // What the sessions' common arena takes where the first one's step takes so much.
  int64_t arena_bytes(int64_t step_bytes) const;
  // What a budget leaves for the arena.
  int64_t pages_left(int64_t memory_bytes) const;
  // Null where the program cannot be split so.
  const Split* split(Parts parts) const;
  std::optional<Split> make_split(Parts parts) const;
  const ProgramSolver& solver_of(Parts parts) const;
  MemorySolution as_split(MemorySolution solution, Parts parts) const;
  // By the index of StepSolver; null past the last.
  std::shared_ptr<const Candidate> candidate(size_t index) const;
  // What the process needs on a device without end; nothing when it fits on none.
  std::optional<int64_t> bytes_without_limit() const;
  // What the process takes at its peak under that limit; nothing when the program does not fit.
  static std::optional<int64_t> play(const PlannedProgram& planned, int64_t memory_bytes,
                                     const RunSetup& setup);
  // The same, but throws InvalidArgument for a strategy that cannot be, and for a limit below context and
  // libraries.
  static std::optional<int64_t> play_unchecked(const PlannedProgram& planned, int64_t memory_bytes,
                                               RunSetup setup);
  // The least limit under which it fits, looked for from `memory_bytes` on. Nothing when all that the device
  // has free is not enough.
  static std::optional<int64_t> least_limit(const PlannedProgram& planned, int64_t memory_bytes,
                                            const RunSetup& setup);
  int64_t sum_fixed_bytes() const;
  MemorySolution result(const Candidate& candidate, int64_t memory_bytes) const;

  const Program program_;
  RunSetup setup_;
  NodeCostsOf costs_of_;
  const int replicas_;
  const HostLink host_;
  // What was worked out before.
  mutable std::map<Parts, std::optional<Split>> splits_;
  mutable std::map<size_t, std::shared_ptr<const Candidate>> candidates_;
  mutable std::optional<Least> least_;
  mutable std::unique_ptr<ProgramSolver> without_host_;  // once it was asked for
  mutable std::optional<std::unique_ptr<ProgramSolver>> compressed_;
  mutable std::optional<std::vector<StatesOnHost>> states_on_host_;
  const NodeCosts costs_;
  mutable StepSolver step_;
  std::shared_ptr<const PlannedProgram> planned_;  // without a budget
  int64_t fixed_bytes_ = 0;                        // of the process beside its sessions' arena
  int64_t other_bytes_ = 0;                        // the most that a session but the first takes
  int64_t bytes_without_ = 0;
  double us_without_ = 0;
};

}  // namespace headroom
