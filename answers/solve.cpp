#include "answers/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "answers/variants.h"
#include "base/errors.h"

namespace headroom {
namespace {

// Maximum number of parts: with more, a step takes longer and planning does too. Among the divisors of the
// batch, the next one tried is at least that many times larger.
constexpr int kMostParts = 64;
constexpr double kPartsGrowth = 1.2;
// If twice the parts use no less memory, twice as many again may, because levers affect parts differently.
constexpr int kMostMisses = 2;
// Numbers of parts of the loss; its gradients are added up once for each part.
constexpr std::array kLossParts = {4, 16};
// Each node holds its operands and results at once: a buffer that is so many times larger than all free
// memory fits with no lever, as a step has at most 64 parts of it, and these a quarter of its bits.
constexpr int64_t kMostTimesFree = 4 * kMostParts;
// More than any device has.
constexpr int64_t kAnyDeviceBytes = int64_t{1} << 46;

bool takes_less(const MemorySolution& solution, const MemorySolution& other) {
  return solution.least_memory_bytes > 0 &&
         (other.least_memory_bytes == 0 || solution.least_memory_bytes < other.least_memory_bytes);
}

// Fits where the other does not, or for less time; or, where neither fits, names a smaller least.
bool is_better(const MemorySolution& solution, const MemorySolution& other) {
  return solution.fits ? !other.fits || solution.us < other.us : !other.fits && takes_less(solution, other);
}

bool is_power_of_two(int number) {
  return (number & (number - 1)) == 0;
}

NodeCostsOf modeled_costs(const DeviceProfile& device) {
  return [speed = speed_of(device)](const Graph& graph) {
    return NodeCosts{workspaces_of_cpu_kernels(graph), node_times_us(graph, speed)};
  };
}

}  // namespace

// The best of the variants that were tried.
struct Solver::Best {
  MemorySolution solution;
  Variant* variant = nullptr;

  bool is_free() const { return solution.fits && solution.levers.empty(); }
  bool may_be_beaten_by(const Variant& other) const {
    return !solution.fits || other.lower_bound_us() < solution.us;
  }
  // True where it fits.
  bool offer(Variant& tried, int64_t memory_bytes);
};

Solver::Solver(Program program, const RunSetup& setup, NodeCostsOf costs_of, int replicas)
    : Solver(std::vector{std::move(program)}, setup, std::move(costs_of), host_link_of(setup, replicas)) {}

Solver::Solver(std::span<const Program> ranks, const RunSetup& setup)
    : Solver(std::vector(ranks.begin(), ranks.end()), setup, {},
             host_link_of(setup, static_cast<int>(ranks.size()))) {}

Solver::Solver(std::vector<Program> programs, RunSetup setup, NodeCostsOf costs_of, const HostLink& host)
    : setup_(std::move(setup)),
      costs_of_(costs_of ? std::move(costs_of) : modeled_costs(setup_.device)),
      host_(host) {
  for (Program& program : programs) {
    if (!plain_.empty() && plain_.back()->program().graph == program.graph) continue;
    plain_.push_back(std::make_unique<Variant>(std::move(program), setup_, costs_of_, host_));
  }
}

int64_t Solver::bytes_without() const {
  int64_t bytes = 0;
  for (const auto& plain : plain_) bytes = std::max(bytes, plain->bytes_without());
  return bytes;
}

MemorySolution Solver::solve(int64_t memory_bytes) const {
  return solve(memory_bytes, setup_.options.split_batch, setup_.options.compress_norms);
}

MemorySolution Solver::solve(int64_t memory_bytes, SplitBatch split, bool compresses_norms) const {
  const int64_t free = free_bytes(setup_);
  memory_bytes = std::min(memory_bytes, free);
  for (const auto& plain : plain_) {
    if (plain->largest_buffer_bytes() / kMostTimesFree > free) return plain->as_it_is(memory_bytes);
  }
  std::vector<Best> all = find_all(memory_bytes, split, compresses_norms);
  const bool is_refused = !all_fit(all);
  const int64_t least_bytes = is_refused ? least_of(all) : 0;
  if (least_bytes > 0) {
    // The costs of fitting in the least budget.
    std::vector<Best> of_least = find_all(least_bytes, split, compresses_norms);
    if (all_fit(of_least)) all = std::move(of_least);
  }
  for (const Best& best : all) {
    if (!best.solution.fits) continue;
    if (const auto fault = best.variant->find_plan_fault(best.solution))
      throw Error(fmt::format("a plan of the solver is not sound: {}", *fault));
  }
  MemorySolution solution = of_slowest(all);
  solution.memory_bytes = memory_bytes;
  if (!keeps_bits(solution)) solution.notes = {describe_bits(solution)};
  if (is_refused) {
    solution.fits = false;
    solution.least_memory_bytes = least_bytes;
  }
  return solution;
}

bool Solver::all_fit(const std::vector<Best>& all) {
  return std::ranges::all_of(all, [](const Best& best) { return best.solution.fits; });
}

// The least budget in which all fit; 0 where one of them fits in none.
int64_t Solver::least_of(const std::vector<Best>& all) {
  int64_t least = 0;
  for (const auto& [solution, variant] : all) {
    if (solution.fits) continue;
    if (solution.least_memory_bytes == 0) return 0;
    least = std::max(least, solution.least_memory_bytes);
  }
  return least;
}

MemorySolution Solver::of_slowest(const std::vector<Best>& all) {
  const auto slowest = std::ranges::max_element(all, [](const Best& a, const Best& b) {
    return std::pair(a.solution.us, a.solution.process_bytes) <
           std::pair(b.solution.us, b.solution.process_bytes);
  });
  MemorySolution result = slowest->solution;
  for (const auto& [solution, variant] : all) {
    result.process_bytes = std::max(result.process_bytes, solution.process_bytes);
    result.process_bytes_without = std::max(result.process_bytes_without, solution.process_bytes_without);
    result.host_bytes = std::max(result.host_bytes, solution.host_bytes);
  }
  return result;
}

int64_t Solver::least_on_larger_device() const {
  RunSetup larger = setup_;
  larger.device.total_bytes = kAnyDeviceBytes;
  std::vector<Program> programs;
  for (const auto& plain : plain_) programs.push_back(plain->program());
  return Solver(std::move(programs), std::move(larger), costs_of_, host_).solve_least().least_memory_bytes;
}

std::vector<Solver::Best> Solver::find_all(int64_t memory_bytes, SplitBatch split,
                                           bool compresses_norms) const {
  std::vector<Best> all;
  for (const auto& plain : plain_) all.push_back(find(*plain, memory_bytes, split, compresses_norms));
  return all;
}

template <class Make>
Variant* Solver::changed(Variant& base, std::string_view lever, int amount, const Make& make) const {
  const auto [known, is_new] = variants_.try_emplace({&base, lever, amount});
  if (is_new) {
    if (std::optional<Lever> change = make())
      known->second = std::make_unique<Variant>(base, std::move(*change));
  }
  return known->second.get();
}

bool Solver::Best::offer(Variant& tried, int64_t memory_bytes) {
  MemorySolution found = tried.solve(memory_bytes);
  const bool fits = found.fits;
  if (variant == nullptr || is_better(found, solution)) {
    solution = std::move(found);
    variant = &tried;
  }
  return fits;
}

Solver::Best Solver::find(Variant& plain, int64_t memory_bytes, SplitBatch split,
                          bool compresses_norms) const {
  Best best;
  const auto try_all = [&](Variant& base) {
    const bool fits = try_with_states(base, memory_bytes, best);
    if (split == SplitBatch::kCheaper || (split == SplitBatch::kNeeded && !fits))
      try_parts(base, memory_bytes, best);
  };
  try_all(plain);
  if (!compresses_norms || best.is_free()) return best;
  Variant* const compressed =
      changed(plain, kCompressNormsLever, 1, [&] { return compressed_norms(plain.program()); });
  if (compressed != nullptr && best.may_be_beaten_by(*compressed)) try_all(*compressed);
  return best;
}

// The variant, and with states in host memory; true where one of them fits.
bool Solver::try_with_states(Variant& base, int64_t memory_bytes, Best& best) const {
  bool fits = best.offer(base, memory_bytes);
  if (best.is_free() || !base.host().exists()) return fits;
  const std::vector<Lever> changes = states_on_host(base.program(), base.host().max_bytes);
  const auto with_states = [&](size_t i) -> Variant& {
    return *changed(base, kHostStateLever, static_cast<int>(i), [&] { return std::optional(changes[i]); });
  };
  // More states take less of the device.
  if (!best.solution.fits && !changes.empty())
    fits = best.offer(with_states(changes.size() - 1), memory_bytes);
  for (size_t i = 0; i < changes.size() && best.solution.fits; ++i) {
    if (!best.may_be_beaten_by(with_states(i))) break;
    fits = best.offer(with_states(i), memory_bytes) || fits;
  }
  return fits;
}

// The variant with its loss, then its batch in parts.
void Solver::try_parts(Variant& base, int64_t memory_bytes, Best& best) const {
  int misses = 0;
  // False where no more parts can be of use: more of them take more time.
  const auto try_one = [&](Variant& parts, int count) {
    if (!best.may_be_beaten_by(parts)) return false;
    const int64_t least_before = best.solution.least_memory_bytes;
    try_with_states(parts, memory_bytes, best);
    if (best.solution.fits) return true;
    const bool takes_less = best.solution.least_memory_bytes != least_before;
    misses = takes_less ? 0 : misses + (is_power_of_two(count) ? 1 : 0);
    return misses < kMostMisses;
  };
  for (const int count : kLossParts) {
    Variant* const parts = changed(base, kSplitLossLever, count, [&] {
      return loss_in_parts(base.program(), count, base.planned_bytes_without());
    });
    if (parts != nullptr && !try_one(*parts, count)) break;
  }
  misses = 0;
  int last = 1;
  for (int count = 2; count <= kMostParts; ++count) {
    if (count < kPartsGrowth * last) continue;
    Variant* const parts =
        changed(base, kSplitBatchLever, count, [&] { return batch_in_parts(base.program(), count); });
    if (parts == nullptr) continue;
    if (!try_one(*parts, count)) break;
    last = count;
  }
}

std::vector<Program> keep_to_memory(std::vector<Program> programs, const RuntimeOptions& options) {
  if (!options.memory_bytes) return programs;
  const RunSetup setup = setup_of(options);
  const Graph* before = nullptr;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    Program& program = programs[rank];
    const Graph* const graph = program.graph.get();
    if (graph == std::exchange(before, graph) && rank > 0) {
      program = programs[rank - 1];
      continue;
    }
    const Solver solver(program, setup, {}, static_cast<int>(programs.size()));
    auto solution = std::make_shared<const MemorySolution>(solver.solve(*options.memory_bytes));
    std::shared_ptr<Graph> rewritten_graph = program.graph->copy();
    apply(*solution, *rewritten_graph, program.targets);
    program = with_graph(program, std::move(rewritten_graph));
    program.memory = std::move(solution);
  }
  return programs;
}

std::optional<MemoryTooSmall> find_refusal(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    if (program.memory == nullptr || program.memory->fits) continue;
    return MemoryTooSmall(program.memory->memory_bytes, program.memory->least_memory_bytes);
  }
  return std::nullopt;
}

void require_fit(const std::vector<Program>& programs) {
  if (const std::optional<MemoryTooSmall> refusal = find_refusal(programs)) throw MemoryTooSmall(*refusal);
}

}  // namespace headroom
