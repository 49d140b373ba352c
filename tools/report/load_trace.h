// Loads the trace that the views of a recording show. Knows no output.
#pragma once

#include <string>

#include "tools/trace/tracing_options.h"
#include "trace/read_trace.h"
#include "trace/trace.h"

namespace headroom::report {

// Reads a file of any format that read_traces knows, or traces a program of PyTorch, and unfolds it. If the
// file holds traces of several devices, the one with the largest peak is returned. A snapshot without a
// history is a trace of one moment. Throws as read_traces and trace_program do.
Trace load_trace(const std::string& path, const TracingOptions& traced = {}, FollowReading follow = {});

// Replaces the arena of a packed plan by its tensors: each block with parts is followed by one pass over its
// parts, which are allocated and freed as blocks of their own at the time of the block. The block itself then
// requests 0 bytes, so that no byte counts twice; its reserved size stays.
Trace unfold(Trace trace);

}  // namespace headroom::report
