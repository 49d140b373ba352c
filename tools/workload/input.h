// What a command is given to work on: a recorded trace, or a memory snapshot of PyTorch.
#pragma once

#include <string>
#include <vector>

#include "allocators/trace/trace.h"
#include "runtime/app/option_set.h"
#include "tools/workload/workload.h"

namespace headroom {

inline constexpr const char* kInputHelp = "A trace, or a memory snapshot of PyTorch";

// The trace of the device with the largest peak in that file. Throws InvalidArgument for what cannot be read.
Trace read_input(const std::string& text);

// read_input for the only argument of a command. Where the command line names no device and no strategy, the
// options get those of the trace. Throws InvalidArgument for several arguments.
Trace read_one_input(const OptionSet& set, const std::vector<std::string>& inputs, WorkloadOptions& options);

}  // namespace headroom
