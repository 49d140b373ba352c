// The programs that a solver searches beside its own: in parts of the batch or the loss, with norms in 8
// bits, with states of the optimizer in host memory.
#include <algorithm>
#include <array>
#include <utility>

#include "answers/solve_program.h"
#include "runtime/graph/host_state.h"
#include "runtime/plan/compress_norms.h"
#include "runtime/plan/split_batch.h"
#include "runtime/plan/split_loss.h"
#include "runtime/session/variables.h"

namespace headroom {
namespace {

// Parts of more nodes than this together take long to plan.
constexpr size_t kMostNodesOfParts = 10'000;
// Where the logits are less of the step than this, they are not worth a search.
constexpr double kLeastLogitsShare = 0.05;
// Of the optimizer's state, to lie in host memory. Each is a search of its own.
constexpr std::array kStateShares = {0.25, 0.5, 0.75, 1.0};
// An update that reads and writes its state over the link reaches this share of what copies both ways do.
// Measured on an H200 for 512 MiB of Adam's state: 41.8 of 44.6 GB/s each way.
constexpr double kReachedLink = 0.93;

}  // namespace

const ProgramSolver::Split* ProgramSolver::split(Parts parts) const {
  const auto [known, is_new] = splits_.try_emplace(parts);
  if (is_new) known->second = make_split(parts);
  return known->second ? &*known->second : nullptr;
}

std::optional<ProgramSolver::Split> ProgramSolver::make_split(Parts parts) const {
  std::shared_ptr<const Graph> part;
  std::shared_ptr<Graph> graph;
  if (program_.graph->nodes().size() * static_cast<size_t>(parts.batch) > kMostNodesOfParts) return {};
  if (parts.loss > 1) {
    const std::vector<Value> fetches = all_fetches(program_.targets);
    const auto logits_bytes = static_cast<double>(splittable_logits_bytes(*program_.graph, fetches));
    if (logits_bytes <= kLeastLogitsShare * static_cast<double>(planned_->plans.front().peak_bytes))
      return {};
    graph = program_.graph->copy();
    split_loss(*graph, parts.loss, fetches);
  } else {
    if (!program_.part) return {};
    part = program_.part(parts.batch);
    if (part == nullptr || !why_not_split(*program_.graph, *part, parts.batch, program_.targets).empty())
      return {};
    graph = program_.graph->copy();
    split_batch(*graph, *part, parts.batch, program_.targets);
  }
  Program program = with_graph(program_, std::move(graph));
  program.part = {};
  // Its kernels are made when it is solved. Until then its time is to that of the whole as in the model.
  const auto modelled_us = [&](const Program& any) {
    return step_us(any, node_times_us(*any.graph, speed_of(setup_.device)));
  };
  const double us = us_without_ * modelled_us(program) / modelled_us(program_);
  return Split{std::move(part), std::move(program), us, nullptr};
}

const ProgramSolver& ProgramSolver::solver_of(Parts parts) const {
  Split& split = *splits_.at(parts);
  if (!split.solver)
    split.solver = std::make_unique<ProgramSolver>(split.program, setup_, costs_of_, replicas_);
  return *split.solver;
}

MemorySolution ProgramSolver::as_split(MemorySolution solution, Parts parts) const {
  const Split& split = *splits_.at(parts);
  solution.parts = parts.batch;
  solution.loss_parts = parts.loss;
  solution.part = split.part;
  solution.levers.insert(solution.levers.begin(), {parts.loss > 1 ? kSplitLossLever : kSplitBatchLever,
                                                   bytes_without_ - split.solver->bytes_without_,
                                                   split.solver->us_without_ - us_without_});
  solution.process_bytes_without = bytes_without_;
  solution.us_without = us_without_;
  solution.normalises_parts =
      solution.part != nullptr &&
      std::any_of(solution.part->nodes().begin(), solution.part->nodes().end(), [](const Node& node) {
        return std::holds_alternative<BatchNorm>(node.op) ||
               std::holds_alternative<BatchNormStatistics>(node.op);
      });
  return solution;
}

const ProgramSolver* ProgramSolver::compressed() const {
  if (compressed_) return compressed_->get();
  compressed_.emplace();
  const std::vector<Value> fetches = all_fetches(program_.targets);
  const auto compress = [fetches](const Graph& graph) {
    std::shared_ptr<Graph> copy = graph.copy();
    return compress_norms(*copy, fetches) > 0 ? copy : nullptr;
  };
  std::shared_ptr<Graph> graph = compress(*program_.graph);
  if (graph == nullptr) return nullptr;
  Program program = with_graph(program_, std::move(graph));
  if (program_.part) {
    program.part = [part_of = program_.part, compress](int64_t parts) -> std::shared_ptr<const Graph> {
      const std::shared_ptr<const Graph> part = part_of(parts);
      return part == nullptr ? nullptr : compress(*part);
    };
  }
  *compressed_ = std::make_unique<ProgramSolver>(std::move(program), setup_, costs_of_, replicas_);
  return compressed_->get();
}

std::vector<ProgramSolver::StatesOnHost>& ProgramSolver::states_on_host() const {
  if (states_on_host_) return *states_on_host_;
  states_on_host_.emplace();
  if (!host_.exists()) return *states_on_host_;
  const std::vector<int> states = find_movable_states(*program_.graph, all_fetches(program_.targets));
  const auto bytes_of = [&](int id) { return Variables::block_bytes(program_.graph->value(id)); };
  int64_t all_bytes = 0;
  for (const int id : states) all_bytes += bytes_of(id);
  for (const double share : kStateShares) {
    StatesOnHost moved;
    for (const int id : states) {
      if (static_cast<double>(moved.bytes) >= share * static_cast<double>(all_bytes)) break;
      if (moved.bytes + bytes_of(id) > host_.max_bytes) continue;
      moved.states.push_back(id);
      moved.bytes += bytes_of(id);
    }
    const int64_t before = states_on_host_->empty() ? 0 : states_on_host_->back().bytes;
    if (moved.bytes <= before) continue;
    const std::unique_ptr<Graph> graph = program_.graph->copy();
    put_on_host(*graph, moved.states);
    const std::vector<int64_t> linked_bytes = host_state_bytes(*graph);
    for (size_t node = 0; node < linked_bytes.size(); ++node) {
      if (linked_bytes[node] == 0) continue;
      // Each way once, both at a time.
      moved.added_us += std::max(0.0, host_.copy_us(linked_bytes[node]) / kReachedLink - costs_.us[node]);
    }
    states_on_host_->push_back(std::move(moved));
  }
  return *states_on_host_;
}

const ProgramSolver& ProgramSolver::solver_of(StatesOnHost& moved) const {
  if (moved.solver) return *moved.solver;
  std::shared_ptr<Graph> graph = program_.graph->copy();
  put_on_host(*graph, moved.states);
  RunSetup setup = setup_;
  setup.options.host_memory_bytes = (host_.max_bytes - moved.bytes) * replicas_;
  const NodeCostsOf costs_of = [this, moved_graph = graph.get()](const Graph& any) {
    return &any == moved_graph ? costs_ : costs_of_(any);
  };
  moved.solver = std::make_unique<ProgramSolver>(with_graph(program_, std::move(graph)), std::move(setup),
                                                 costs_of, replicas_);
  // No value of the step is another one.
  moved.solver->step_.take_found(moved.solver->host_.exists() ? step_ : without_host().step_);
  return *moved.solver;
}

MemorySolution ProgramSolver::with_states(MemorySolution solution, const StatesOnHost& moved) const {
  solution.host_states = moved.states;
  solution.host_bytes += moved.bytes;
  solution.levers.insert(solution.levers.begin(),
                         {kHostStateLever, bytes_without_ - moved.solver->bytes_without_, moved.added_us});
  solution.process_bytes_without = bytes_without_;
  return solution;
}

}  // namespace headroom
