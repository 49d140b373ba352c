#include "tools/workload/explain_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "allocators/strategies/strategy.h"
#include "answers/play.h"
#include "answers/predict.h"
#include "base/errors.h"

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
  const Traced program = traced_here(trace);
  const int64_t passes = std::min<int64_t>(options.step.steps, 2);
  const RunSetup present =
      with_libraries(program, with_budget(setup_of_failure(options.runtime, *measured.memory)));
  const Play again = [&](const RunSetup& setup, bool explains) -> Prediction {
    try {
      const RunSetup ready = prepared(program, setup);
      return play(program, ready, {.explains = explains, .passes = passes});
    } catch (const InvalidArgument& error) {  // a strategy that cannot keep to the limit
      return {.reason = error.what()};
    }
  };
  OutOfMemoryReport report = explain_out_of_memory(*measured.memory, present, again);
  report.message = fmt::format("{}: {}", measured.error, report.message);
  return report;
}

WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change) {
  WorkloadOptions changed = options;
  changed.runtime = change.setup.options;
  if (options.runtime.memory_bytes && !change.setup.has_plan)
    changed.runtime.memory_bytes = free_bytes(change.setup);
  if (change.setup.batch > 0) changed.step.batch = change.setup.batch;
  return changed;
}

}  // namespace headroom
