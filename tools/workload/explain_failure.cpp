#include "tools/workload/explain_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/play_program.h"
#include "runtime/play_trace.h"
#include "runtime/replicas.h"

namespace headroom {
namespace {

// The largest batch up to this one that the replicas can share equally.
int64_t shared_batch(int64_t batch, const ReplicaOptions& options) {
  return std::max<int64_t>(1, batch / options.replicas) * options.replicas;
}

}  // namespace

std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options,
                                                 const Measurement& measured) {
  // The twin on which changes are played has one device.
  if (!measured.memory || !options.runtime.place.empty()) return std::nullopt;
  const MemoryFacts& facts = *measured.memory;
  const RuntimeOptions runtime =
      measured.failed_rank ? with_gpu(options.runtime, *measured.failed_rank) : options.runtime;
  const Setting present{.device = twin_of(runtime, {.total = facts.device_total, .others = facts.others}),
                        .options = runtime,
                        .batch = options.step.batch,
                        .has_plan = true};
  const Play play = [&](const Setting& setting) {
    WorkloadOptions changed = options;
    changed.step.batch = shared_batch(setting.batch, options.replicas);
    const Program program = make_program(changed);
    return play_program(*program.graph, program.targets, setting);
  };
  OutOfMemoryReport report = explain_out_of_memory(facts, present, play, measured.error);
  if (!measured.failed_rank) return report;
  if (facts.requested > 0) {
    report.message = fmt::format("{}: {}", name_replica(*measured.failed_rank), report.message);
  }
  for (TriedChange& change : report.changes) change.setting.options.device = options.runtime.device;
  return report;
}

std::optional<OutOfMemoryReport> explain_failure(const Trace& trace, const WorkloadOptions& options,
                                                 const Measurement& measured) {
  // The twin has one strategy.
  if (!measured.memory || !options.runtime.virtual_devices.empty()) return std::nullopt;
  const MemoryFacts& facts = *measured.memory;
  const Setting present{
      .device = twin_of(options.runtime, {.total = facts.device_total, .others = facts.others}),
      .options = options.runtime};
  const int64_t passes = std::min<int64_t>(options.step.steps, 2);
  OutOfMemoryReport report = explain_out_of_memory(
      facts, present, [&](const Setting& setting) { return play_trace_on_device(trace, setting, passes); });
  report.message = fmt::format("{}: {}", measured.error, report.message);
  return report;
}

WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change) {
  WorkloadOptions changed = options;
  changed.runtime = change.setting.options;
  if (change.setting.batch > 0) changed.step.batch = shared_batch(change.setting.batch, options.replicas);
  return changed;
}

}  // namespace headroom
