// The reason that a workload ran out of memory, and the smallest change with which it fits. Knows no command
// line.
#pragma once

#include <optional>

#include "answers/out_of_memory.h"
#include "tools/workload/measure.h"
#include "tools/workload/workload.h"
#include "trace/trace.h"

namespace headroom {

// Explains a run of the options that ended as `measured`; returns nothing unless memory ran out.
std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options, const Measurement& measured);
// Explains the failure of a replayed trace; at most two passes test each change.
std::optional<OutOfMemoryReport> explain_failure(const Trace& trace, const WorkloadOptions& options,
                                                 const Measurement& measured);

// The options after the change.
WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change);

}  // namespace headroom
