#include "tools/report/load_trace.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tools/trace/program.h"
#include "tools/trace/recording.h"
#include "tools/workload/input.h"
#include "trace/unfold.h"

namespace headroom::report {

Trace load_trace(const std::string& path, const TracingOptions& traced, Progress& progress) {
  if (path.empty()) return unfold(trace_of_net(traced));
  if (is_program(path)) return unfold(trace_program(program_request(path, traced), progress));
  progress.begin(0, "", "reading " + printable(path));
  const auto follow = [&](double share) { progress.reach(share); };
  std::vector<Trace> traces = read_with_notes(path, follow, Moments::kTake);
  return unfold(std::move(*std::ranges::max_element(
      traces, [](const Trace& a, const Trace& b) { return a.peak_bytes < b.peak_bytes; })));
}

}  // namespace headroom::report
