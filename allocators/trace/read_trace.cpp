#include "allocators/trace/read_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocators/trace/categorize.h"
#include "allocators/trace/formats.h"
#include "allocators/trace/trace_format.h"

namespace headroom {
namespace {

std::vector<Trace> read_any(TraceInput& input) {
  std::vector<Trace> traces;
  const std::string_view start = input.peek(64);
  if (start.starts_with(kCsvHeader) || start.starts_with("a,")) {
    traces.push_back(read_csv_trace(input));
  } else if (start.starts_with(kRmmHeader)) {
    traces.push_back(read_rmm_log(input));
  } else if (start.starts_with(kTraceStart)) {
    traces.push_back(read_headroom_trace(input));
  } else if (start.starts_with(kPickleStart)) {
    traces = read_torch_snapshot(input);
  } else {
    if (start.empty()) input.fail("no trace: the file is empty");
    input.fail(fmt::format("no trace: expected a file that begins with '{}', '{}' or '{}', or a pickle",
                           kTraceStart, kCsvHeader, kRmmHeader));
  }
  return traces;
}

}  // namespace

std::vector<Trace> read_traces(const std::string& path, FollowReading follow) {
  TraceInput input(path, std::move(follow));
  std::vector<Trace> traces = read_any(input);
  for (Trace& trace : traces) {
    if (trace.blocks == 0) input.fail("the trace allocates nothing");
    categorize(trace);
  }
  return traces;
}

}  // namespace headroom
