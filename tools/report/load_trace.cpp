#include "tools/report/load_trace.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "allocators/trace/read_trace.h"
#include "tools/report/unfold.h"

namespace headroom {

Trace load_trace(const std::string& path) {
  std::vector<Trace> traces = read_traces(path);
  return unfold(std::move(*std::max_element(traces.begin(), traces.end(), [](const Trace& a, const Trace& b) {
    return a.peak_bytes < b.peak_bytes;
  })));
}

std::string printable_name(const std::string& name) {
  std::string text = name;
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f; },
      '?');
  return text;
}

}  // namespace headroom
