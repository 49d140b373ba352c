#include "answers/step_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "answers/solve.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/session/link_timer.h"
#include "runtime/session/node_timer.h"

namespace headroom {
namespace {

// Libraries have algorithms for each of these workspaces; with the last one the slowest of them.
constexpr std::array<int64_t, 3> kWorkspaceLimits = {32 * kMiB, 4 * kMiB, 0};

// Code that the driver loads when a kernel runs for the first time: of our own kernels, and of libraries'
// whose choice was kept from an earlier run, so that nothing ran before the plan. Measured on an H200 with
// driver 580, from the plan to the end of a run: 10 and 28 MiB for ResNet-50, 14 for GPT-2.
constexpr int64_t kOwnCodeBytes = 32 * kMiB;

// The setup with the context, the libraries and their code as they are: the kernels have started them.
RunSetup setup_of_started(const DeviceSet& devices, const RuntimeOptions& options, double link_bytes_per_us) {
  const PlacedDevice& here = devices.front();
  const MemoryInfo info = here.device->memory().info();
  const int64_t held = info.process - here.allocator->statistics().reserved.current;
  RunSetup setup = setup_of(options);
  setup.device.blas = setup.device.dnn = {};
  setup.device.own_module_bytes = kOwnCodeBytes;
  setup.device.context_bytes = std::max(held, info.context);
  setup.device.stack_bytes = setup.device.context_bytes - held;
  setup.device.link_gb_per_s = 1e-3 * link_bytes_per_us;
  return setup;
}

// The solution of a program on devices whose kernels have been made once. Kernels of a changed graph may be
// others, and loading them takes memory: then the program is solved again beside it.
MemorySolution solve_beside_kernels(const Program& program, const DeviceSet& devices,
                                    const RuntimeOptions& options, SplitBatch split, int64_t memory_bytes,
                                    const NodeCostsOf& costs_of, double link_bytes_per_us, int replicas) {
  constexpr int kMaxRounds = 3;
  for (int round = 1;; ++round) {
    RunSetup setup = setup_of_started(devices, options, link_bytes_per_us);
    setup.options.split_batch = split;
    MemorySolution solution = Solver(program, setup, costs_of, replicas).solve(memory_bytes);
    const int64_t held = setup_of_started(devices, options, link_bytes_per_us).device.kept_context_bytes();
    if (!solution.fits || held <= setup.device.kept_context_bytes() || round == kMaxRounds) return solution;
  }
}

// Plans with the workspaces and the times of the device's kernels. The first choice keeps the algorithms and
// so all bits; then libraries get less workspace, and finally the batch may be split, if the options allow
// it. A budget that does not fit is refused with the minimum of a run: nodes are measured within the budget,
// which loads their code, so the minimum is planned for as well.
KernelsAndMemory keep_on_gpu(Graph& graph, const Program& program, const DeviceSet& devices,
                             const KernelSettings& settings, const RuntimeOptions& options) {
  std::optional<MemoryTooSmall> failure;
  NodeTimer timer(*devices.front().device);
  std::optional<double> link_bytes_per_us;
  const DeviceCollective* const collective = devices.front().collective;
  const int replicas = collective == nullptr ? 1 : collective->size();
  int64_t memory_bytes = *options.memory_bytes;
  const auto attempt = [&](SplitBatch split, int64_t limit) -> std::optional<KernelsAndMemory> {
    KernelSettings limited = settings;
    limited.workspace_limit_bytes = limit;
    const NodeCostsOf costs_of = [&](const Graph& any) {
      const Kernels kernels(any, devices, limited);
      NodeCosts costs{{kernels.workspace_bytes().begin(), kernels.workspace_bytes().end()}, {}};
      costs.us = timer.times_us(any, kernels, memory_bytes)
                     .value_or(node_times_us(any, speed_of(setup_of(options).device)));
      return costs;
    };
    // The kernels start the libraries, which then belong to what the process holds.
    const NodeCosts of_program = costs_of(graph);
    // Once the libraries are started, so that a wait for them is none of the copies' time.
    if (!link_bytes_per_us)
      link_bytes_per_us = measure_link_bytes_per_us(*devices.front().device, memory_bytes);
    const NodeCostsOf known_costs_of = [&](const Graph& any) {
      return &any == program.graph.get() ? of_program : costs_of(any);
    };
    MemorySolution solution = solve_beside_kernels(program, devices, options, split, memory_bytes,
                                                   known_costs_of, link_bytes_per_us.value_or(0), replicas);
    if (!solution.fits) {
      const int64_t least = solution.least_memory_bytes;
      if (!failure || (least > 0 && least < failure->least_bytes())) {
        failure.emplace(memory_bytes, least);
      }
      return std::nullopt;
    }
    if (memory_bytes != *options.memory_bytes) return KernelsAndMemory();  // it is not to run
    if (limit < settings.workspace_limit_bytes) {
      solution.notes.push_back(fmt::format(
          "library kernels get at most {} of workspace: their last bits may differ", format_bytes(limit)));
    }
    apply(solution, graph, program.targets);
    return KernelsAndMemory(std::make_shared<const Kernels>(graph, devices, limited),
                            std::make_shared<const MemorySolution>(std::move(solution)));
  };
  // Some problems have no algorithm without a workspace.
  int64_t least_limit = settings.workspace_limit_bytes;
  const auto attempt_with_less = [&](SplitBatch split, int64_t limit) -> std::optional<KernelsAndMemory> {
    try {
      std::optional<KernelsAndMemory> kept = attempt(split, limit);
      least_limit = limit;
      return kept;
    } catch (const LibraryError& error) {
      if (error.status() != "NOT_SUPPORTED") throw;
      return std::nullopt;
    }
  };
  const SplitBatch allowed = options.split_batch;
  const SplitBatch first = allowed == SplitBatch::kNeeded ? SplitBatch::kNever : allowed;
  const auto attempt_all = [&]() -> std::optional<KernelsAndMemory> {
    if (auto kept = attempt(first, settings.workspace_limit_bytes)) return kept;
    for (const int64_t limit : kWorkspaceLimits) {
      if (limit >= settings.workspace_limit_bytes) continue;
      if (auto kept = attempt_with_less(first, limit)) return kept;
    }
    if (first == allowed) return std::nullopt;
    if (auto kept = attempt(allowed, settings.workspace_limit_bytes)) return kept;
    return attempt_with_less(allowed, least_limit);
  };
  if (auto kept = attempt_all()) return *kept;
  constexpr int kMaxRounds = 3;
  int64_t least = failure->least_bytes();
  for (int round = 0; round < kMaxRounds && least > 0; ++round) {
    memory_bytes = least;
    failure.reset();
    if (attempt_all()) break;
    least = failure->least_bytes();
  }
  throw MemoryTooSmall(*options.memory_bytes, least);
}

}  // namespace

std::shared_ptr<const MemorySolution> plan_ahead(const Program& program, const RuntimeOptions& options) {
  if (!options.memory_bytes || cuda_ordinal(options.device)) return nullptr;
  const std::vector<Program> programs = keep_to_memory({program}, options);
  require_fit(programs);
  return programs.front().memory;
}

KernelsAndMemory make_step_kernels(Graph& graph, const Program& program, const DeviceSet& devices,
                                   const KernelSettings& settings, const RuntimeOptions& options,
                                   std::shared_ptr<const MemorySolution> planned) {
  if (options.memory_bytes) {
    if (cuda_ordinal(options.device)) return keep_on_gpu(graph, program, devices, settings, options);
    if (planned == nullptr) planned = plan_ahead(program, options);
    apply(*planned, graph, program.targets);
  }
  return {std::make_shared<const Kernels>(graph, devices, settings), std::move(planned)};
}

}  // namespace headroom
