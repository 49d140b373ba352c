#include "tools/workload/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "allocators/trace/read_trace.h"
#include "runtime/app/options.h"
#include "runtime/base/errors.h"
#include "tools/trace/program.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {

ProgramRequest program_request(const std::string& text, const WorkloadOptions& options, int64_t batch) {
  TracingOptions traced{.batch = batch};
  if (options.step.steps > 0) traced.steps = options.step.steps;
  // The default of other commands, a laptop, is no GPU to trace kernels of.
  const RuntimeOptions& runtime = options.runtime;
  const bool is_default = runtime.device == WorkloadOptions{}.runtime.device && !runtime.device_memory_bytes;
  if (const auto profile = simulated_profile(runtime); profile && !is_default) traced.device = profile->name;
  return program_request(text, traced);
}

Trace read_input(const std::string& text, const WorkloadOptions& options, int64_t batch) {
  if (is_program(text)) return trace_program(program_request(text, options, batch));
  std::vector<Trace> traces = read_traces(text);
  return std::move(*std::max_element(traces.begin(), traces.end(), [](const Trace& a, const Trace& b) {
    return a.peak_bytes < b.peak_bytes;
  }));
}

std::vector<Trace> read_inputs(const std::string& text, const TracingOptions& traced, FollowReading follow) {
  if (!is_program(text)) return read_traces(text, std::move(follow));
  std::vector<Trace> traces;
  traces.push_back(trace_program(program_request(text, traced)));
  return traces;
}

void use_recorded_setup(const OptionSet& set, const Trace& trace, RuntimeOptions& options) {
  if (!set.is_given("strategy")) options.strategy = recorded_strategy(trace);
  if (!set.is_given("device") && !options.device_memory_bytes) {
    options = with_recorded_device(std::move(options), trace);
  }
}

Trace read_one_input(const OptionSet& set, const std::vector<std::string>& inputs, WorkloadOptions& options) {
  if (inputs.size() != 1) {
    throw InvalidArgument(fmt::format("{} inputs are given: pass one", inputs.size()));
  }
  if (set.is_given("net")) throw InvalidArgument("an input and --net exclude each other: pass one");
  check_tracing_options(set, inputs, {"batch", "steps"});
  if (!set.is_given("steps")) options.step.steps = 0;  // the tracer's own number
  Trace trace = read_input(inputs.front(), options, set.is_given("batch") ? options.step.batch : 0);
  use_recorded_setup(set, trace, options.runtime);
  return trace;
}

}  // namespace headroom
