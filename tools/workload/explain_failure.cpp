#include "tools/workload/explain_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "answers/play_trace.h"

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
  const int64_t passes = std::min<int64_t>(options.step.steps, 2);
  RunSetup present = setup_of_failure(options.runtime, *measured.memory);
  if (simulated_profile(options.runtime)) present.device.stack_bytes = 0;  // as measure() has it
  OutOfMemoryReport report =
      explain_out_of_memory(*measured.memory, present, [&](const RunSetup& setup, bool explains) {
        return play_trace_on_device(trace, setup, passes, explains);
      });
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
