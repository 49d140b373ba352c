// Loads the trace that the views of a recording show. Knows no output.
#pragma once

#include <string>

#include "base/progress.h"
#include "tools/trace/tracing_options.h"
#include "trace/trace.h"

namespace headroom::report {

// Reads a file of any format that read_traces knows, or traces a program of PyTorch or, without a path, the
// net of the options, and unfolds it. If the file holds traces of several devices, the one with the largest
// peak is returned. A snapshot without a history is a trace of one moment. Shows its progress. Throws as
// read_traces and trace_program do.
Trace load_trace(const std::string& path, const TracingOptions& traced, Progress& progress);

}  // namespace headroom::report
