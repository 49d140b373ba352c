// What a few real steps of a program took, or how they ended. Knows no command line.
#pragma once

#include <cstdint>
#include <string>

#include "allocators/trace/trace.h"
#include "tools/workload/workload.h"

namespace headroom {

struct Measurement {
  std::string outcome = "ok";     // "out_of_memory", "library_failure" (of a library or the driver)
  std::string error;              // one line; empty when all went well
  int64_t steps = 0;              // that were run
  double seconds_per_step = 0;    // median; of a trace the time that the strategy takes for one pass
  int64_t peak_device_bytes = 0;  // as the driver sees it, others included
  int64_t peak_process_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t overhead_bytes = 0;  // context and libraries: what the process holds past the strategy
};

// Trains the net for the steps of the options, mnist for one epoch, and tests mnist. Lack of memory and
// failures of libraries end in the result; throws InvalidArgument for options that are wrong.
Measurement measure(const WorkloadOptions& options);

// Plays the trace `steps` times to the strategy of the options, on their device.
Measurement measure(const Trace& trace, const RuntimeOptions& options, int64_t steps);

}  // namespace headroom
