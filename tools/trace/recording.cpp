#include "tools/trace/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"

namespace headroom {

std::vector<Trace> read_with_notes(const std::string& path, FollowReading follow, Moments moments) {
  std::vector<Trace> traces = read_traces(path, std::move(follow), moments);
  if (std::ranges::any_of(traces, [](const Trace& trace) { return trace.cut_off; })) {
    fmt::print(stderr,
               "note: {}: the last line is incomplete and was ignored; the program may have been killed, or "
               "the file was not copied whole, so more may follow\n",
               printable(path, 200));
  }
  return traces;
}

}  // namespace headroom
