#include "tools/workload/explain_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocators/strategies/strategy.h"
#include "answers/play.h"
#include "base/errors.h"
#include "device/host/simulated_gpu.h"
#include "runtime/session/start_op.h"

namespace headroom {
namespace {

// The setup that the run met. On a real GPU the facts say what other processes held: now it would include
// this process.
RunSetup setup_of_failure(const RuntimeOptions& options, const MemoryFacts& facts) {
  RunSetup setup = setup_of(options);
  setup.device.others_bytes = facts.others;
  if (simulated_profile(options)) return setup;
  setup.device.total_bytes = facts.device_total;
  for (PhysicalGpu& gpu : setup.gpus.physical) gpu.used_bytes = facts.others;
  return setup;
}

// Plays the trace on the device of the setup, where other processes, the context and the reserve for
// libraries take their share; the libraries themselves instead of the reserve, where they start first.
Played play_on_device(const Trace& trace, const RunSetup& setup, int64_t passes, bool explains) {
  try {
    SimulatedGpu device(setup.device, 0, Backing::kNone);
    StrategySettings strategy = setup.options.strategy_settings();
    if (!setup.gpus.logical.empty()) {
      strategy = strategy_on(setup.gpus, default_device(setup.options), strategy);
    }
    strategy.record_path.clear();  // a trial records nothing
    strategy = prepared_for(trace, std::move(strategy));
    if (setup.options.libraries_first) strategy.reserve_bytes = start_libraries_with_kernels(device);
    Played played = play(trace, strategy, device, {.explains = explains, .passes = passes});
    played.enough_total = 0;  // the memory that a pool leaves to libraries depends on the total
    return played;
  } catch (const InvalidArgument& error) {  // a limit above this device's total
    return {.error = error.what()};
  } catch (const DeviceError& error) {  // no room for the context
    return {.error = error.what()};
  } catch (const LibraryError& error) {  // started first
    return {.error = error.what()};
  }
}

}  // namespace

std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options,
                                                 const Measurement& measured) {
  if (!measured.memory) return std::nullopt;
  RunSetup present = setup_of_failure(options.runtime, *measured.memory);
  present.batch = options.step.batch;
  present.batch_unit = options.replicas.replicas;
  present.has_plan = true;
  return explain_run(measured, present, [&](const RunSetup& setup) {
    WorkloadOptions changed = options;
    changed.step.batch = setup.batch;
    if (setup.options.memory_bytes) changed.runtime = setup.options;
    return make_programs(changed);
  });
}

std::optional<OutOfMemoryReport> explain_failure(const Trace& trace, const WorkloadOptions& options,
                                                 const Measurement& measured) {
  if (!measured.memory) return std::nullopt;
  const int64_t passes = std::min<int64_t>(options.step.steps, 2);
  RunSetup present = setup_of_failure(options.runtime, *measured.memory);
  if (simulated_profile(options.runtime)) present.device.stack_bytes = 0;  // as measure() has it
  OutOfMemoryReport report = explain_out_of_memory(
      *measured.memory, present,
      [&](const RunSetup& setup, bool explains) { return play_on_device(trace, setup, passes, explains); });
  report.message = fmt::format("{}: {}", measured.error, report.message);
  return report;
}

WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change) {
  WorkloadOptions changed = options;
  changed.runtime = change.setup.options;
  if (change.setup.batch > 0) changed.step.batch = change.setup.batch;
  return changed;
}

}  // namespace headroom
