#include "answers/play_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "answers/twin.h"
#include "base/errors.h"
#include "kernels/kernel.h"
#include "runtime/app/run_result.h"
#include "runtime/graph/placement.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// Planning and walking a step takes about as long as this many events of a trace.
constexpr int64_t kEventsOfStep = 8;

Play play_of(const MakePrograms& make) {
  return [make](const RunSetup& setup, bool explains) -> Attempt {
    try {
      const auto planned = plan_programs(make(setup), setup.options.plan);
      Attempt attempt = play(to_play(planned, setup.options), setup, explains);
      attempt.enough_total = 0;  // see would_play_alike: a limit may depend on the total
      for (const auto& program : planned) {
        for (const Plan& plan : program->plans) {
          attempt.work += kEventsOfStep * static_cast<int64_t>(plan.steps.size());
        }
      }
      return attempt;
    } catch (const InvalidArgument& error) {
      return {.fits = false, .error = error.what(), .failure = {}};
    }
  };
}

// Whether a strategy took less than the cap that it derived from what was free, if it did.
bool is_below_limit(const DevicePeak& device, Twin& twin) {
  const std::optional<int64_t> limit = twin.at(device.name).allocator->limit_bytes();
  return !limit || device.peak.reserved_bytes < *limit;
}

int64_t enough_total(std::span<const DevicePeak> devices, const RunSetup& setup, Twin& twin) {
  const StrategySettings settings = setup.strategy.value_or(setup.options.strategy_settings());
  if (setup.gpus.has_virtual() || depends_on_total(settings)) return 0;
  int64_t enough = 1;
  for (const DevicePeak& device : devices) {
    if (parse_device_name(device.name).type == DeviceType::kCpu) continue;  // its total is its own
    const int64_t total = twin.gpu(device.name).memory().info().enough_total;
    if (total == 0 || !is_below_limit(device, twin)) return 0;
    enough = std::max(enough, total);
  }
  return enough;
}

}  // namespace

Program with_graph(const Program& program, std::shared_ptr<const Graph> graph) {
  Program result = program;
  for (Targets& targets : result.targets) {
    for (std::vector<Value>* values : {&targets.fetches, &targets.updated}) {
      for (Value& value : *values) value.graph = const_cast<Graph*>(graph.get());
    }
  }
  result.graph = std::move(graph);
  return result;
}

std::vector<int64_t> workspaces_of_cpu_kernels(const Graph& graph) {
  std::vector<int64_t> bytes;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorSpec> inputs, outputs;
    for (int id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (int id : node.outputs) outputs.push_back(graph.value(id).spec);
    bytes.push_back(make_cpu_kernel(node.op, inputs, outputs)->workspace_bytes());
  }
  return bytes;
}

std::shared_ptr<const PlannedProgram> plan_program(const Program& program, PlanMode mode,
                                                   std::span<const int64_t> workspace_bytes) {
  PlannedProgram result{program, {}};
  for (const Targets& targets : program.targets) {
    result.plans.push_back(make_plan(*program.graph, targets, mode, workspace_bytes));
  }
  return std::make_shared<const PlannedProgram>(std::move(result));
}

std::vector<std::shared_ptr<const PlannedProgram>> plan_programs(std::span<const Program> ranks,
                                                                 PlanMode mode) {
  std::vector<std::shared_ptr<const PlannedProgram>> planned;
  for (const Program& program : ranks) {
    if (!planned.empty() && planned.back()->program.graph == program.graph) {
      planned.push_back(planned.back());
      continue;
    }
    planned.push_back(plan_program(program, mode, workspaces_of_cpu_kernels(*program.graph)));
  }
  return planned;
}

std::vector<Played> to_play(std::span<const std::shared_ptr<const PlannedProgram>> ranks,
                            const RuntimeOptions& options) {
  std::vector<Played> replicas;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const ReplicaDevices devices =
        devices_of_replica(options, static_cast<int>(ranks.size()), static_cast<int>(rank));
    Played& played = replicas.emplace_back(Played{ranks[rank]->program.graph.get(), {}, devices});
    for (const Plan& plan : ranks[rank]->plans) played.plans.push_back(&plan);
  }
  return replicas;
}

PlayedAttempt play(std::span<const Played> replicas, const RunSetup& setup, bool explains) {
  PlayedAttempt result;
  std::deque<FailureObserver> observers;  // outlive the allocators that they watch
  Twin twin(setup);
  const auto fail = [&](const Error& error, std::optional<int64_t> requested) {
    result.error = error.what();
    result.lacking_bytes = 1;
    for (const DevicePeak& device : result.devices) {
      SimulatedGpu& gpu = twin.gpu(device.name);
      const int64_t bytes = requested.value_or(gpu.libraries().pending_bytes());
      result.lacking_bytes = std::max(result.lacking_bytes, bytes - gpu.memory().info().free);
    }
    result.devices.clear();
  };
  try {
    std::vector<PlayedProgram> programs;
    for (const Played& replica : replicas) {
      std::vector<std::string> all_used = devices_of(*replica.graph);
      std::erase(all_used, kHostPlace);  // the set has it
      const auto name_of = [&](const std::string& used) { return replica.devices.find(used).text(); };
      for (const std::string& used : all_used)
        twin.gpu(name_of(used)).libraries().expect(libraries_of(*replica.graph, used));
      std::vector<PlacedDevice> devices;
      for (const std::string& used : all_used) {
        const std::string name = name_of(used);
        result.devices.push_back({name, {}});
        devices.push_back(twin.at(name));
        devices.back().in_graph = used;
        if (explains) observers.emplace_back().watch(*devices.back().allocator);
      }
      programs.push_back({replica.graph, replica.plans, DeviceSet(std::move(devices))});
    }
    const std::vector<PeakPrediction> peaks = predict_peaks(programs);
    for (size_t i = 0; i < peaks.size(); ++i) {
      DevicePeak& device = result.devices[i];
      SimulatedGpu& gpu = twin.gpu(device.name);
      device.peak = peaks[i];
      device.library_bytes = gpu.libraries().held_bytes();
    }
    result.fragmentation = peaks[0].fragmentation;
    result.fits = true;
    result.enough_total = enough_total(result.devices, setup, twin);
  } catch (const OutOfMemory& error) {
    const MemoryFacts& facts = error.facts();
    fail(error, facts.requested);
    const int64_t idle = facts.reserved - facts.allocated;
    if (idle > 0) {
      result.fragmentation = 1 - static_cast<double>(facts.largest_free_block) / static_cast<double>(idle);
    }
  } catch (const LibraryError& error) {
    fail(error, std::nullopt);
  } catch (const DeviceError& error) {
    fail(error, std::nullopt);
  }
  for (const FailureObserver& observer : observers) {
    if (observer.failure()) result.failure = observer.failure();
  }
  return result;
}

bool would_play_alike(const PlayedAttempt& fitted, const RunSetup& smaller) {
  if (fitted.enough_total == 0 || fitted.enough_total > smaller.device.total_bytes) return false;
  Twin twin(smaller);
  return std::all_of(fitted.devices.begin(), fitted.devices.end(),
                     [&](const DevicePeak& device) { return is_below_limit(device, twin); });
}

std::optional<OutOfMemoryReport> explain_run(const RunResult& result, const RunSetup& present,
                                             const MakePrograms& make) {
  const bool was_refused =
      result.outcome == RunOutcome::kOutOfMemory && result.memory && result.memory->device_total == 0;
  if (!result.memory || was_refused) return std::nullopt;
  OutOfMemoryReport report = explain_out_of_memory(*result.memory, present, play_of(make), result.error);
  if (result.failed_rank && result.memory->requested > 0) {
    report.message = fmt::format("{}: {}", name_failed_replica(result), report.message);
  }
  return report;
}

OutOfMemoryReport explain_out_of_memory(const OutOfMemory& error, const Graph& graph,
                                        std::span<const Targets> targets, RunSetup present) {
  present.has_plan = true;
  const std::shared_ptr<const Graph> not_owned(std::shared_ptr<const Graph>(), &graph);
  const std::vector<Program> programs = {{not_owned, {targets.begin(), targets.end()}}};
  return explain_out_of_memory(error.facts(), present, play_of([&](const RunSetup&) { return programs; }));
}

}  // namespace headroom
