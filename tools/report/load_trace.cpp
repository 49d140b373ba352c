#include "tools/report/load_trace.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "allocators/trace/read_trace.h"
#include "tools/report/unfold.h"

namespace headroom::report {

Trace load_trace(const std::string& path) {
  std::vector<Trace> traces = read_traces(path);
  return unfold(std::move(*std::max_element(traces.begin(), traces.end(), [](const Trace& a, const Trace& b) {
    return a.peak_bytes < b.peak_bytes;
  })));
}

}  // namespace headroom::report
