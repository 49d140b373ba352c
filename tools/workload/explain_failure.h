// Why a workload ran out of memory, and the smallest change with which it fits. Knows no command line.
#pragma once

#include <optional>

#include "allocators/trace/trace.h"
#include "runtime/predict/out_of_memory.h"
#include "tools/workload/measurement.h"
#include "tools/workload/workload.h"

namespace headroom {

// Of a run of the options that ended as `measured`; nothing where that was not for lack of memory.
std::optional<OutOfMemoryReport> explain_failure(const WorkloadOptions& options, const Measurement& measured);
// The same of a trace that was played; each change is proven by two passes at most.
std::optional<OutOfMemoryReport> explain_failure(const Trace& trace, const WorkloadOptions& options,
                                                 const Measurement& measured);

// The options with a change made to them.
WorkloadOptions with_change(const WorkloadOptions& options, const TriedChange& change);

}  // namespace headroom
