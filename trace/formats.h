// The readers that read_traces chooses from, one per format. Each reads from the start of the input and
// throws InvalidArgument with the line or byte.
#pragma once

#include <vector>

#include "base/errors.h"
#include "trace/read_trace.h"
#include "trace/trace.h"
#include "trace/trace_input.h"

namespace headroom {

Trace read_csv_trace(TraceInput& input);
Trace read_rmm_log(TraceInput& input);
Trace read_headroom_trace(TraceInput& input);
std::vector<Trace> read_torch_snapshot(TraceInput& input, Moments moments);

// The first bytes of each format.
inline constexpr std::string_view kCsvHeader = "op,id,bytes";
inline constexpr std::string_view kRmmHeader = "Thread,Time,Action,Pointer,Size,Stream";
inline constexpr std::string_view kPickleStart = "\x80";

// Calls `read(line)` for each remaining line, and adds file and line to exceptions.
template <typename Read>
void for_each_line(TraceInput& input, Read read) {
  std::string_view line;
  while (input.next_line(&line)) {
    try {
      read(line);
    } catch (const InvalidArgument& error) {
      input.fail_at_line(error.what());
    }
  }
}

}  // namespace headroom
