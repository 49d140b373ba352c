// Training programs in PyTorch, given as "train.py:make_step": traced in a Python process without a GPU, see
// docs/trace.md. Knows no strategy and no view of a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allocators/trace/trace.h"

namespace headroom {

struct ProgramRequest {
  std::string program;           // "train.py:make_step"
  std::optional<int64_t> batch;  // what make_step is called with; none: nothing
  int64_t steps = 3;
  std::string device = "h200";  // the GPU whose kernels are traced, with or without "sim:"
};

// Whether a text names a function in a Python file: "train.py:make_step".
bool is_program(std::string_view text);

// What the program asks of its memory strategy in these steps; the trace is named after the program. Runs
// `python3 -m headroom trace`, where HEADROOM_PYTHON, this command's folder or PATH has one. Throws
// InvalidArgument with one line, and the program's own line where there is one, for a program that cannot be
// traced, and Error when Python, the package headroom or PyTorch is missing.
Trace trace_program(const ProgramRequest& request);

// The same, kept in a file.
Trace trace_program_to(const ProgramRequest& request, const std::string& path);

}  // namespace headroom
