// `headroom fit` for a recorded or traced program.
#pragma once

#include <cstdint>
#include <string>

#include "tools/workload/workload.h"

namespace headroom {

struct TraceFitOptions {
  int64_t margin_bytes = 0, max_batch = 1;
  bool least_memory = false, json = false;
};

// Prints the largest batch of a program that fits on the device of the options, or the least memory for the
// batch of `trace`. Returns the exit code. Throws InvalidArgument for the largest batch of a recorded trace,
// which has one batch.
int fit_trace(const Trace& trace, const std::string& input, const WorkloadOptions& options,
              const TraceFitOptions& fit);

}  // namespace headroom
