// Runs a few real steps of a program and notes what they took. Knows no command line.
#pragma once

#include "allocators/trace/trace.h"
#include "tools/workload/measurement.h"
#include "tools/workload/workload.h"

namespace headroom {

// Trains the net for the steps of the options, mnist for one epoch, and tests mnist. Lack of memory and
// failures of libraries end in the result; throws InvalidArgument for options that are wrong.
Measurement measure(const WorkloadOptions& options);

// Plays the trace `steps` times to the strategy of the options, on their device.
Measurement measure(const Trace& trace, const RuntimeOptions& options, int64_t steps);

}  // namespace headroom
