#include "trace/read_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "trace/categorize.h"
#include "trace/formats.h"
#include "trace/trace_format.h"

namespace headroom {
namespace {

// Excel begins text in UTF-8 with it.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The beginnings of a pickled dictionary or list before protocol 2, which put the protocol first.
bool is_text_pickle(std::string_view start) {
  for (const std::string_view begins : {"(dp0\n", "(lp0\n", "}q", "]q"}) {
    if (start.starts_with(begins)) return true;
  }
  return false;
}

std::vector<Trace> read_any(TraceInput& input, Moments moments) {
  std::vector<Trace> traces;
  std::string_view start = input.peek(64);
  if (start.starts_with(kByteOrderMark)) {
    char mark[kByteOrderMark.size()];
    input.read(mark, std::ssize(kByteOrderMark));
    start = input.peek(64);
  }
  if (start.starts_with(kCsvHeader) || start.starts_with("a,")) {
    traces.push_back(read_csv_trace(input));
  } else if (start.starts_with(kRmmHeader)) {
    traces.push_back(read_rmm_log(input));
  } else if (start.starts_with(kTraceStart)) {
    traces.push_back(read_headroom_trace(input));
  } else if (start.starts_with(kPickleStart)) {
    traces = read_torch_snapshot(input, moments);
  } else if (is_text_pickle(start)) {
    input.fail(
        "a pickle of protocol 0 or 1, which is not read: write it with pickle.dump(snapshot, file, "
        "protocol=4)");
  } else {
    if (start.empty()) input.fail("not a trace: the file is empty");
    input.fail(fmt::format("not a trace: expected a file that begins with '{}', '{}' or '{}', or a pickle",
                           kTraceStart, kCsvHeader, kRmmHeader));
  }
  return traces;
}

}  // namespace

std::vector<Trace> read_traces(const std::string& path, FollowReading follow, Moments moments,
                               const std::string& title) {
  TraceInput input(path, std::move(follow), title);
  std::vector<Trace> traces = read_any(input, moments);
  for (Trace& trace : traces) {
    const bool can_be_shown = moments == Moments::kTake && fatal_failure(trace) != nullptr;
    if (trace.blocks == 0 && !can_be_shown) input.fail("the trace allocates nothing");
    categorize(trace);
  }
  return traces;
}

}  // namespace headroom
