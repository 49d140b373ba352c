#include "tools/workload/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocators/trace/read_trace.h"
#include "runtime/base/errors.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {

Trace read_input(const std::string& text) {
  std::vector<Trace> traces = read_traces(text);
  return std::move(*std::max_element(traces.begin(), traces.end(), [](const Trace& a, const Trace& b) {
    return a.peak_bytes < b.peak_bytes;
  }));
}

Trace read_one_input(const OptionSet& set, const std::vector<std::string>& inputs, WorkloadOptions& options) {
  if (inputs.size() != 1) {
    throw InvalidArgument(fmt::format("{} inputs are given: pass one", inputs.size()));
  }
  if (set.is_given("net")) throw InvalidArgument("an input and --net exclude each other: pass one");
  Trace trace = read_input(inputs.front());
  if (!set.is_given("strategy")) options.runtime.strategy = recorded_strategy(trace);
  if (!set.is_given("device") && !options.runtime.device_memory_bytes) {
    options.runtime = with_recorded_device(std::move(options.runtime), trace);
  }
  return trace;
}

}  // namespace headroom
