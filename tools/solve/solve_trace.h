// `headroom solve` for a PyTorch program, or a recording of one.
#pragma once

#include <string>

#include "base/terminal.h"
#include "tools/workload/workload.h"

namespace headroom {

// Whether that names a program of PyTorch, or a file that is no ONNX model.
bool is_trace_input(const std::string& text);

// Prints the changes of the program with which it keeps to the memory of the options, or to all that the
// device has free. `set` says which options were given. Also writes a page to `html`, unless that is empty.
// Returns the exit code.
int solve_trace(const OptionSet& set, const std::string& input, WorkloadOptions options,
                const std::string& html, bool json);

}  // namespace headroom
