#include "tools/workload/explain_failure.h"

#include "runtime/play_program.h"

namespace headroom {

std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options,
                                                 const Measurement& measured) {
  // The twin on which changes are played has one device.
  if (!measured.memory || !options.runtime.place.empty()) return std::nullopt;
  const MemoryFacts& facts = *measured.memory;
  const Setting present{
      .device = twin_of(options.runtime, {.total = facts.device_total, .others = facts.others}),
      .options = options.runtime,
      .batch = options.step.batch,
      .has_plan = true};
  const Play play = [&](const Setting& setting) {
    WorkloadOptions changed = options;
    changed.step.batch = setting.batch;
    const Program program = make_program(changed);
    return play_program(*program.graph, program.targets, setting);
  };
  return explain_out_of_memory(facts, present, play, measured.error);
}

WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change) {
  WorkloadOptions changed = options;
  changed.runtime = change.setting.options;
  changed.step.batch = change.setting.batch;
  return changed;
}

}  // namespace headroom
