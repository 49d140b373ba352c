#include "tools/workload/explain_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/predict/play_trace.h"

namespace headroom {
namespace {

// What the options' run met. What others hold of a real GPU now is not told from what this process does.
Setting setting_of_failure(const RuntimeOptions& options, const MemoryFacts& facts) {
  Setting setting = setting_of(options);
  setting.device.others_bytes = facts.others;
  if (simulated_profile(options)) return setting;
  setting.device.total_bytes = facts.device_total;
  for (PhysicalGpu& gpu : setting.gpus.physical) gpu.used_bytes = facts.others;
  return setting;
}

}  // namespace

std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options,
                                                 const Measurement& measured) {
  if (!measured.memory) return std::nullopt;
  Setting present = setting_of_failure(options.runtime, *measured.memory);
  present.batch = options.step.batch;
  present.batch_unit = options.replicas.replicas;
  present.has_plan = true;
  return explain_run(measured, present, [&](const Setting& setting) {
    WorkloadOptions changed = options;
    changed.step.batch = setting.batch;
    return make_programs(changed);
  });
}

std::optional<OutOfMemoryReport> explain_failure(const Trace& trace, const WorkloadOptions& options,
                                                 const Measurement& measured) {
  if (!measured.memory) return std::nullopt;
  const int64_t passes = std::min<int64_t>(options.step.steps, 2);
  OutOfMemoryReport report = explain_out_of_memory(
      *measured.memory, setting_of_failure(options.runtime, *measured.memory),
      [&](const Setting& setting) { return play_trace_on_device(trace, setting, passes); });
  report.message = fmt::format("{}: {}", measured.error, report.message);
  return report;
}

WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change) {
  WorkloadOptions changed = options;
  changed.runtime = change.setting.options;
  if (change.setting.batch > 0) changed.step.batch = change.setting.batch;
  return changed;
}

}  // namespace headroom
