#include "tools/report/load_trace.h"

#include <algorithm>
#include <utility>

#include "tools/trace/program.h"
#include "tools/trace/recording.h"
#include "tools/workload/input.h"
#include "trace/unfold.h"

namespace headroom::report {

Trace load_trace(const std::string& path, const TracingOptions& traced, FollowReading follow) {
  if (path.empty()) return unfold(trace_of_net(traced));
  if (is_program(path)) return unfold(trace_program(program_request(path, traced)));
  std::vector<Trace> traces = read_with_notes(path, std::move(follow), Moments::kTake);
  return unfold(std::move(*std::max_element(traces.begin(), traces.end(), [](const Trace& a, const Trace& b) {
    return a.peak_bytes < b.peak_bytes;
  })));
}

}  // namespace headroom::report
