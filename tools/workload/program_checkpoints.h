// Traces of a PyTorch program with some of its modules as checkpoints. Knows no device and no budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/trace/program.h"
#include "tools/workload/torch_advice.h"

namespace headroom {

// Of the model of that class (TracedProgram::model), with that batch (none: the program's own).
TraceCheckpoints trace_checkpoints(std::shared_ptr<ProgramTracer> tracer, std::optional<int64_t> batch,
                                   std::string model);
// The same for a program that nobody has loaded: it is loaded when a trace is asked for first.
TraceCheckpoints trace_checkpoints(const ProgramRequest& request);

}  // namespace headroom
