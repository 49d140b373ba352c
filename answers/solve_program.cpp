#include "answers/solve_program.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "answers/lower.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"
#include "runtime/session/variables.h"

namespace headroom {
namespace {

// Real kernels reach about these shares of a card's published peaks. An empty one takes some microseconds.
constexpr double kReachedFlops = 0.6, kReachedTraffic = 0.85, kLaunchUs = 2;
// Likewise an empty copy between host and device.
constexpr double kCopyUs = 5;

Program with_schedule(const Program& program, const NodeSchedule& schedule) {
  return with_graph(program, rewritten(*program.graph, schedule));
}

// Most parts to try: with more, a step takes longer and is planned longer. Of numbers that divide the batch
// the next to try is at least that many times larger.
constexpr int kMostParts = 64;
constexpr double kPartsGrowth = 1.2;
// Where twice the parts take no less, twice as many again may, as parts differ in what levers do to them.
constexpr int kMostInVain = 2;
// So many schedules in a row whose packing takes no less end the search for the least.
constexpr int kMostPackedInVain = 8;
// Of the loss, whose gradients are added up once for each.
constexpr std::array kLossParts = {4, 16};
// More than any device has.
constexpr int64_t kEnough = int64_t{1} << 46;
// Nodes of the plans that are kept for another budget, some hundred bytes each.
constexpr size_t kMaxKeptNodes = size_t{1} << 18;

// Whether the least budget that the solution names is below that of the other, which may name none.
bool takes_less(const MemorySolution& solution, const MemorySolution& other) {
  return solution.least_memory_bytes > 0 &&
         (other.least_memory_bytes == 0 || solution.least_memory_bytes < other.least_memory_bytes);
}

// Whether the solution keeps the budget and the other does not, or does so for less; or, where neither keeps
// it, whether it names a smaller least.
bool is_better(const MemorySolution& solution, const MemorySolution& other) {
  return solution.keeps ? !other.keeps || solution.us < other.us
                        : !other.keeps && takes_less(solution, other);
}

bool is_power_of_two(int number) {
  return (number & (number - 1)) == 0;
}

NodeCostsOf modelled_costs(const DeviceProfile& device) {
  return [speed = speed_of(device)](const Graph& graph) {
    return NodeCosts{workspaces_of_cpu_kernels(graph), node_times_us(graph, speed)};
  };
}

// What is known of each node of a graph, by node of the graph with that schedule.
std::vector<int64_t> rearranged(const std::vector<int64_t>& by_node, const NodeSchedule& schedule) {
  std::vector<int64_t> result;
  std::vector<bool> ran(by_node.size());
  for (const ScheduledNode& scheduled : schedule.nodes) {
    if (scheduled.kind != ScheduledKind::kNode) {
      result.push_back(0);
      continue;
    }
    result.push_back(by_node[static_cast<size_t>(scheduled.node)]);
    ran[static_cast<size_t>(scheduled.node)] = true;
  }
  for (size_t i = 0; i < ran.size(); ++i) {
    if (!ran[i]) result.push_back(by_node[i]);
  }
  return result;
}

}  // namespace

DeviceSpeed speed_of(const DeviceProfile& profile) {
  // TFLOP/s and GB/s in units of one microsecond.
  return {.flops_per_us = 1e6 * kReachedFlops * std::max(profile.tflops, 1e-3),
          .bytes_per_us = 1e3 * kReachedTraffic * std::max(profile.memory_gb_per_s, 1e-3),
          .launch_us = kLaunchUs,
          .half_factor = profile.compute_capability >= 80   ? 2.0
                         : profile.compute_capability >= 70 ? 8.0
                                                            : 1.0};
}

HostLink host_link_of(const RunSetup& setup, int replicas) {
  if (setup.gpus.physical.empty() || setup.options.plan != PlanMode::kPacked) return {};
  return {.bytes_per_us = 1e3 * link_gb_per_s(setup.device),
          .latency_us = kCopyUs,
          .max_bytes = setup.options.host_memory_bytes.value_or(0) / replicas};
}

ProgramSolver::ProgramSolver(Program program, RunSetup setup, NodeCostsOf costs_of, int replicas)
    : program_(std::move(program)),
      setup_(std::move(setup)),
      costs_of_(costs_of ? std::move(costs_of) : modelled_costs(setup_.device)),
      replicas_(replicas),
      host_(host_link_of(setup_, replicas)),
      costs_(costs_of_(*program_.graph)),
      step_({*program_.graph, program_.targets.front(), costs_.workspace_bytes, costs_.us, host_}) {
  std::vector<std::string> devices = devices_of(*program_.graph);
  std::erase(devices, kHostPlace);
  if (devices.size() != 1 || setup_.gpus.has_virtual()) {
    throw InvalidArgument("memory: a budget is kept on one device, and the program uses several");
  }
  planned_ = plan_program(program_, setup_.options.plan, costs_.workspace_bytes);
  us_without_ = step_us(program_, costs_.us);
  // Drivers hand out pages: what the process holds beside its sessions' arena is what a play leaves of its
  // peak.
  fixed_bytes_ = sum_fixed_bytes();
  for (size_t i = 1; i < planned_->plans.size(); ++i) {
    other_bytes_ = std::max(other_bytes_, planned_->plans[i].peak_bytes);
  }
  const int64_t session_bytes = planned_->plans.front().peak_bytes;
  const std::optional<int64_t> process_bytes = bytes_without_limit();
  if (process_bytes) fixed_bytes_ = std::max(fixed_bytes_, *process_bytes - arena_bytes(session_bytes));
  bytes_without_ = std::max(process_bytes.value_or(fixed_bytes_ + arena_bytes(session_bytes)),
                            setup_.device.context_bytes);
}

double ProgramSolver::step_us(const Program& program, std::span<const double> node_us) {
  double us = 0;
  for (const int id : find_needed_nodes(*program.graph, program.targets.front()).pure) {
    us += node_us[static_cast<size_t>(id)];
  }
  return us;
}

int64_t ProgramSolver::arena_bytes(int64_t step_bytes) const {
  return round_up(std::max(step_bytes, other_bytes_), setup_.device.granularity_bytes);
}

int64_t ProgramSolver::pages_left(int64_t memory_bytes) const {
  const int64_t page = setup_.device.granularity_bytes;
  return (memory_bytes - fixed_bytes_) / page * page;
}

int64_t ProgramSolver::Candidate::planned_bytes() const {
  return planned->plans.front().peak_bytes;
}

std::shared_ptr<const ProgramSolver::Candidate> ProgramSolver::candidate(size_t index) const {
  const auto known = candidates_.find(index);
  if (known != candidates_.end()) return known->second;
  std::optional<Solution> step = step_.at(index);
  if (!step) return nullptr;
  Candidate made{std::move(*step), planned_};
  if (!made.step.schedule.empty()) {
    const Program program = with_schedule(program_, made.step.schedule);
    made.planned =
        plan_program(program, setup_.options.plan, rearranged(costs_.workspace_bytes, made.step.schedule));
  }
  if ((candidates_.size() + 1) * program_.graph->nodes().size() > kMaxKeptNodes) candidates_.clear();
  return candidates_.emplace(index, std::make_shared<const Candidate>(std::move(made))).first->second;
}

// What the process holds beside its sessions, which share one arena.
int64_t ProgramSolver::sum_fixed_bytes() const {
  int64_t bytes =
      setup_.device.kept_context_bytes() + setup_.device.bytes_of(libraries_of(*program_.graph, {}));
  for (const int id : program_.graph->variables()) {
    const ValueInfo& variable = program_.graph->value(id);
    if (variable.device != kHostPlace) bytes += Variables::block_bytes(variable);
  }
  for (const Plan& plan : planned_->plans) bytes += 2 * plan.input_set_bytes;
  return bytes;
}

std::optional<int64_t> ProgramSolver::bytes_without_limit() const {
  RunSetup setup = setup_;
  setup.device.total_bytes = kEnough;
  for (PhysicalGpu& gpu : setup.gpus.physical) gpu.used_bytes = 0;
  setup.device.context_bytes = setup.device.kept_context_bytes();  // as it is beside the arena
  setup.device.stack_bytes = 0;
  const std::optional<int64_t> process_bytes = play_unchecked(*planned_, kEnough, setup);
  // A strategy that takes a share of all there is needs only what it fits in.
  if (!process_bytes || play(*planned_, kEnough / 2, setup) == process_bytes) return process_bytes;
  return least_limit(*planned_, fixed_bytes_ + arena_bytes(planned_->plans.front().peak_bytes), setup);
}

std::optional<int64_t> ProgramSolver::play_unchecked(const PlannedProgram& planned, int64_t memory_bytes,
                                                     RunSetup setup) {
  setup.options.memory_bytes = memory_bytes;
  setup.options.limit_bytes.reset();
  setup.options.memory_fraction.reset();
  if (setup.strategy) {
    setup.strategy->limit_bytes = memory_bytes;
    setup.strategy->limit_scope = LimitScope::kProcess;
  }
  const std::shared_ptr<const PlannedProgram> not_owned(std::shared_ptr<const PlannedProgram>(), &planned);
  const Played attempt = headroom::play(lower({&not_owned, 1}, setup.options), setup);
  // The context, when it is new, may be the most of all.
  if (!attempt.fits || attempt.front().process_bytes > memory_bytes) return std::nullopt;
  return attempt.front().process_bytes;
}

std::optional<int64_t> ProgramSolver::play(const PlannedProgram& planned, int64_t memory_bytes,
                                           const RunSetup& setup) {
  try {
    return play_unchecked(planned, memory_bytes, setup);
  } catch (const InvalidArgument&) {  // a limit below context and libraries
    return std::nullopt;
  }
}

std::optional<int64_t> ProgramSolver::least_limit(const PlannedProgram& planned, int64_t memory_bytes,
                                                  const RunSetup& setup) {
  const int64_t page = setup.device.granularity_bytes, most = free_bytes(setup);
  int64_t failing = 0, fitting = most + 1, taken = 0;
  const auto fits = [&](int64_t limit) {
    const std::optional<int64_t> process_bytes = play(planned, limit, setup);
    if (process_bytes) taken = *process_bytes;
    (process_bytes ? fitting : failing) = limit;
    return process_bytes.has_value();
  };
  if (fits(std::min(memory_bytes, most))) {
    for (int64_t less = page; fitting > less && fits(fitting - less);) less *= 2;
  } else {
    for (int64_t more = page; !fits(std::min(failing + more, most)); more *= 2) {
      if (failing == most) return std::nullopt;
    }
  }
  while (fitting - failing > page) fits(failing + (fitting - failing) / 2);
  // Most often what it took is the least to the byte; a strategy may also need a whole page to be left.
  bool bisects = false;
  while (fitting - failing > 1) {
    if (failing < taken && taken < fitting) {
      fits(taken);
    } else {
      fits(bisects ? failing + (fitting - failing) / 2 : fitting - 1);
      bisects = true;
    }
  }
  return fitting;
}

MemorySolution ProgramSolver::result(const Candidate& candidate, int64_t memory_bytes) const {
  MemorySolution solution;
  solution.memory_bytes = memory_bytes;
  solution.schedule = candidate.step.schedule;
  solution.levers = candidate.step.levers;
  solution.process_bytes_without = bytes_without_;
  solution.us = candidate.step.us;
  solution.us_without = us_without_;
  // Packed, values may take more of the host than they have.
  solution.host_bytes = host_bytes_of(candidate.planned->plans.front());
  if (solution.host_bytes > host_.max_bytes) return solution;
  if (const std::optional<int64_t> process_bytes = play(*candidate.planned, memory_bytes, setup_)) {
    solution.keeps = true;
    solution.process_bytes = *process_bytes;
  }
  return solution;
}

Allowed allowed_by(const RuntimeOptions& options) {
  return {options.split_batch, options.compress_norms};
}

MemorySolution ProgramSolver::solve(int64_t memory_bytes) const {
  return solve(memory_bytes, allowed_by(setup_.options));
}

MemorySolution ProgramSolver::solve(int64_t memory_bytes, Allowed allowed) const {
  memory_bytes = std::min(memory_bytes, free_bytes(setup_));
  MemorySolution solution = find(memory_bytes, allowed);
  if (solution.keeps || solution.least_memory_bytes == 0) return solution;
  return refused(memory_bytes, std::move(solution), allowed);
}

NodeCostsOf ProgramSolver::known_costs() const {
  return [this](const Graph& graph) { return &graph == program_.graph.get() ? costs_ : costs_of_(graph); };
}

int64_t ProgramSolver::least_on_larger_device() const {
  RunSetup larger = setup_;
  larger.device.total_bytes = kEnough;
  return ProgramSolver(program_, std::move(larger), known_costs(), replicas_)
      .solve_least()
      .least_memory_bytes;
}

// What it costs to keep the least budget.
MemorySolution ProgramSolver::refused(int64_t memory_bytes, MemorySolution least, Allowed allowed) const {
  const int64_t least_bytes = least.least_memory_bytes;
  MemorySolution kept = find(least_bytes, allowed);
  MemorySolution solution = kept.keeps ? std::move(kept) : std::move(least);
  solution.memory_bytes = memory_bytes;
  solution.keeps = false;
  solution.least_memory_bytes = least_bytes;
  return solution;
}

MemorySolution ProgramSolver::find(int64_t memory_bytes, Allowed allowed) const {
  MemorySolution best = find_with_parts(memory_bytes, allowed.split_batch);
  if (!allowed.compress_norms || (best.keeps && best.levers.empty())) return best;
  const ProgramSolver* const compressed = this->compressed();
  if (compressed == nullptr) return best;
  MemorySolution other = compressed->find_with_parts(memory_bytes, allowed.split_batch);
  if (!is_better(other, best)) return best;
  other.compresses_norms = true;
  other.levers.insert(other.levers.begin(), {kCompressNormsLever, bytes_without_ - compressed->bytes_without_,
                                             compressed->us_without_ - us_without_});
  other.process_bytes_without = bytes_without_;
  other.us_without = us_without_;
  return other;
}

MemorySolution ProgramSolver::find_with_parts(int64_t memory_bytes, SplitBatch allowed) const {
  MemorySolution best = solve_unsplit(memory_bytes);
  if (allowed == SplitBatch::kNever || (best.keeps && allowed == SplitBatch::kNeeded)) return best;
  // Levers only add to what parts take without them, and more parts take more: false where no more of them
  // can be of use.
  int in_vain = 0;
  const auto attempt = [&](Parts parts) {
    const Split* const split = this->split(parts);
    if (split == nullptr) return true;
    if (best.keeps && split->us >= best.us) return false;
    MemorySolution solution = solver_of(parts).solve_unsplit(memory_bytes);
    if (solution.keeps) {
      if (!best.keeps || solution.us < best.us) best = as_split(std::move(solution), parts);
    } else if (!best.keeps && takes_less(solution, best)) {
      in_vain = 0;
      best = as_split(std::move(solution), parts);
    } else if (!best.keeps && is_power_of_two(parts.batch)) {
      return ++in_vain < kMostInVain;
    }
    return true;
  };
  for (const int parts : kLossParts) {
    if (!attempt({1, parts})) break;
  }
  in_vain = 0;
  int last = 1;
  for (int parts = 2; parts <= kMostParts; ++parts) {
    if (parts < kPartsGrowth * last || split({parts, 1}) == nullptr) continue;
    if (!attempt({parts, 1})) break;
    last = parts;
  }
  return best;
}

MemorySolution ProgramSolver::solve_least() const {
  return solve(0);
}

MemorySolution ProgramSolver::solve_unsplit(int64_t memory_bytes) const {
  MemorySolution best = solve_values(memory_bytes);
  if (best.keeps && best.levers.empty()) return best;
  const auto attempt = [&](StatesOnHost& moved) {
    MemorySolution solution = solver_of(moved).solve_values(memory_bytes);
    solution.us += moved.added_us;
    if (is_better(solution, best)) best = with_states(std::move(solution), moved);
  };
  std::vector<StatesOnHost>& all = states_on_host();
  // What moves most takes least of the device.
  if (!best.keeps && !all.empty()) attempt(all.back());
  for (StatesOnHost& moved : all) {
    // Levers only add to what the updates take.
    if (!best.keeps || us_without_ + moved.added_us >= best.us) break;
    attempt(moved);
  }
  return best;
}

MemorySolution ProgramSolver::solve_values(int64_t memory_bytes) const {
  const int64_t step_bytes = pages_left(memory_bytes);
  const size_t index = step_.first_within(step_bytes);
  const std::shared_ptr<const Candidate> candidate = this->candidate(index);
  const MemorySolution first = result(*candidate, memory_bytes);
  if (first.keeps && (!host_.exists() || candidate->step.keeps(step_bytes))) return first;
  MemorySolution best = first.keeps ? first : solve_behind(index, memory_bytes);
  if (!host_.exists()) return best;
  // What leaves all values on the device may take more at once, and less when it is packed.
  MemorySolution other = without_host().solve_values(memory_bytes);
  return is_better(other, best) ? other : best;
}

// Of the schedules that take less at once than that one.
MemorySolution ProgramSolver::solve_behind(size_t index, int64_t memory_bytes) const {
  const Least& least = this->least();
  if (least.solution.least_memory_bytes > 0 && least.solution.least_memory_bytes <= memory_bytes) {
    // Packing, and strategies that reserve in units of their own, need more than is live at once.
    while (++index < least.index) {
      MemorySolution solution = result(*candidate(index), memory_bytes);
      if (solution.keeps) return solution;
    }
    return result(*candidate(least.index), memory_bytes);
  }
  MemorySolution solution = least.solution;
  solution.memory_bytes = memory_bytes;
  return solution;
}

const ProgramSolver& ProgramSolver::without_host() const {
  if (!without_host_) {
    RunSetup setup = setup_;
    setup.options.host_memory_bytes = 0;
    without_host_ = std::make_unique<ProgramSolver>(program_, std::move(setup), known_costs(), replicas_);
    without_host_->step_.take_over(step_);
  }
  return *without_host_;
}

const ProgramSolver::Least& ProgramSolver::least() const {
  if (least_) return *least_;
  size_t index = step_.first_within(0);
  std::shared_ptr<const Candidate> best = candidate(index);
  // Schedules that take more may pack better.
  int in_vain = 0;
  for (size_t i = index; i-- > 0 && in_vain < kMostPackedInVain;) {
    if (arena_bytes(step_.at(i)->step_bytes) >= arena_bytes(best->planned_bytes())) break;
    const std::shared_ptr<const Candidate> found = candidate(i);
    ++in_vain;
    if (arena_bytes(found->planned_bytes()) >= arena_bytes(best->planned_bytes())) continue;
    in_vain = 0;
    best = found;
    index = i;
  }
  const int64_t sum =
      std::max(fixed_bytes_ + arena_bytes(best->planned_bytes()), setup_.device.context_bytes);
  std::optional<int64_t> limit = least_limit(*best->planned, sum, setup_);
  // Strategies that reserve in units of their own may need less for another one.
  const int64_t page = setup_.device.granularity_bytes;
  while (limit) {
    const size_t other = step_.first_within(pages_left(*limit - page));
    const std::shared_ptr<const Candidate> found = candidate(other);
    const MemorySolution solution = result(*found, *limit - page);
    if (!solution.keeps) break;
    index = other;
    best = found;
    limit = least_limit(*best->planned, solution.process_bytes, setup_);
  }
  MemorySolution solution = result(*best, limit.value_or(sum));
  solution.keeps = false;
  solution.least_memory_bytes = limit.value_or(0);
  least_ = Least{index, std::move(solution)};
  return *least_;
}

}  // namespace headroom
