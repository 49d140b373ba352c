// `headroom predict` for a recorded or traced program.
#pragma once

#include <optional>
#include <string>

#include "base/terminal.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/workload.h"
#include "trace/trace.h"

namespace headroom {

// Prints whether the trace fits on the device of the options under their strategy, by how much and what takes
// the memory. `input` is what the user named it, `limit` the recorded one that the options have, `batch` the
// one that a program was given, or 0. Returns the exit code.
int predict_trace(const Trace& trace, const std::string& input, const WorkloadOptions& options,
                  const std::optional<RecordedLimit>& limit, int64_t batch, bool json,
                  const Terminal& terminal);

}  // namespace headroom
