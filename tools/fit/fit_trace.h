// `headroom fit` for a recorded or traced program.
#pragma once

#include <cstdint>
#include <string>

#include "base/terminal.h"
#include "tools/workload/workload.h"

namespace headroom {

struct TraceFitOptions {
  int64_t margin_bytes = 0, max_batch = 1;
  bool least_memory = false, json = false;
  Terminal terminal = {0, false};
};

// Prints the largest batch of a program that fits on the device of the options, and traces it with each batch
// that it tries. Returns the exit code. Throws as trace_program does.
int fit_program_batch(const std::string& input, const WorkloadOptions& options, const TraceFitOptions& fit);

// Prints the least memory for a trace, with the context and libraries of the device of the options. Returns
// the exit code. Throws InvalidArgument unless that is asked for, as a trace has one batch.
int fit_trace(const Trace& trace, const std::string& input, const WorkloadOptions& options,
              const TraceFitOptions& fit);

}  // namespace headroom
