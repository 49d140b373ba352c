#include "tools/workload/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "answers/predict.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "runtime/app/options.h"
#include "runtime/app/setup.h"
#include "tools/trace/command.h"
#include "tools/trace/program.h"
#include "tools/trace/recording.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {

ProgramRequest program_request(const std::string& text, const WorkloadOptions& options, int64_t batch) {
  TracingOptions traced;
  if (batch > 0) traced.batch = batch;
  if (options.step.steps > 0) traced.steps = options.step.steps;
  traced.program = options.program;
  // The default of other commands, a laptop, is no GPU to trace kernels of.
  const RuntimeOptions& runtime = options.runtime;
  const bool is_default = runtime.device == WorkloadOptions{}.runtime.device && !runtime.device_memory_bytes;
  if (const auto profile = simulated_profile(runtime); profile && !is_default) traced.device = profile->name;
  return program_request(text, traced);
}

namespace {

// Returns false for a program, and for a file with another first field than a model's: the version of its
// format.
bool is_model(const std::string& text) {
  constexpr char kFirstField = 8;
  if (is_program(text)) return false;
  require_function(text);
  if (text.ends_with(".onnx")) return true;
  char first = 0;
  return OpenFile(text).read(&first, 1) == 1 && first == kFirstField;
}

}  // namespace

namespace {

constexpr const char* kNetOptions[] = {"net", "model", "width", "inference", "optimizer", "plan"};

[[noreturn]] void refuse_beside_input(std::string_view name) {
  throw InvalidArgument(fmt::format("an input and --{} exclude each other: pass one", name));
}

void refuse_beside_input(const OptionSet& set, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (set.is_on_command_line(name)) refuse_beside_input(name);
  }
}

}  // namespace

void refuse_net_beside_input(const OptionSet& set) {
  for (const char* const name : kNetOptions) refuse_beside_input(set, {name});
}

void refuse_net_setting(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('=')).substr(2);
  const bool is_of_net = std::ranges::find(kNetOptions, name) != std::end(kNetOptions);
  if (is_of_net || name == "batch") refuse_beside_input(name);  // it was traced with its batch
}

void prepare_inputs(const OptionSet& set, std::vector<std::string>& inputs, WorkloadOptions& options) {
  if (inputs.empty()) return;
  if (inputs.size() == 1 && is_model(inputs.front())) {
    refuse_beside_input(set, {"net", "model"});
    options.model.path = std::exchange(inputs, {}).front();
  } else if (set.is_given("device")) {
    options.runtime = with_named_profile(std::move(options.runtime));
  }
}

std::vector<Trace> read_recordings(const std::string& path, FollowReading follow) {
  if (path.ends_with(".onnx"))
    throw InvalidArgument(
        fmt::format("{}: a model is no trace; predict, fit, solve and compare take it", printable(path)));
  std::vector<Trace> traces = read_with_notes(path, std::move(follow));
  for (Trace& trace : traces) trace = with_failed_request(std::move(trace));
  return traces;
}

Trace read_input(const std::string& text, const WorkloadOptions& options, int64_t batch) {
  if (is_program(text)) return trace_program(program_request(text, options, batch));
  std::vector<Trace> traces = read_recordings(text);
  return std::move(*std::ranges::max_element(
      traces, [](const Trace& a, const Trace& b) { return a.peak_bytes < b.peak_bytes; }));
}

void add_net_option(OptionSet& set, TracingOptions& options) {
  set.add_choice("net", "Instead of a trace: a net, whose step is planned for --batch", &options.net,
                 net_names());
}

Trace trace_of_net(const TracingOptions& options) {
  WorkloadOptions workload;
  workload.net = options.net;
  if (options.batch) workload.step.batch = *options.batch;
  Trace trace = trace_of(workload).front();
  trace.name = options.net;
  return trace;
}

void check_inputs(const OptionSet& set, const std::vector<std::string>& inputs, TracingOptions& options,
                  std::initializer_list<std::string_view> names) {
  if (!inputs.empty()) refuse_net_beside_input(set);
  if (!inputs.empty()) options.net.clear();
  check_tracing_options(set, inputs, names);
}

std::vector<Trace> read_inputs(const std::string& text, const TracingOptions& traced, Progress& progress) {
  if (!is_program(text)) {
    progress.begin(0, "", "reading " + printable(text));
    return read_recordings(text, [&](double share) { progress.reach(share); });
  }
  std::vector<Trace> traces;
  traces.push_back(trace_program(program_request(text, traced), progress));
  return traces;
}

void use_recorded_setup(const OptionSet& set, const Trace& trace, RuntimeOptions& options) {
  if (!set.is_given("strategy")) options.strategy = recorded_strategy(trace);
  if (!set.is_given("device") && !options.device_memory_bytes) {
    options = with_recorded_device(std::move(options), trace);
    if (!trace.events.empty() && !names_device(trace)) {
      fmt::print(stderr,
                 "note: the recording does not name its device, so this is for an H200; pass --device\n");
    }
  }
  print_traced_device_note(set, trace, options);
}

void print_traced_device_note(const OptionSet& set, const Trace& trace, const RuntimeOptions& options) {
  if (!set.is_given("device")) return;
  const std::string traced = traced_card(trace);
  const auto asked = simulated_profile(options);
  if (traced.empty() || !asked || asked->name == traced) return;
  fmt::print(
      stderr,
      "note: {} was traced for {}; on another card kernels and workspaces may differ: trace the program "
      "with --device {}\n",
      printable(trace.name), traced, asked->name);
}

namespace {

// Returns how much less memory the replay needs than the recorded process, whose last request failed: a
// history begins where its recording does, and earlier blocks are packed as a replay packs them. 0 if it also
// fails.
int64_t spare_of_failure(const Trace& trace, RuntimeOptions options) {
  if (!ends_in_failure(trace)) return 0;
  options.strategy = recorded_strategy(trace);
  const RunSetup setup = setup_to_fit(options);
  const Prediction replayed = predict(traced_here(trace), setup);
  return replayed.fits ? *replayed.margin_bytes + setup.device.granularity_bytes : 0;
}

bool has_limit(const OptionSet& set, const RuntimeOptions& options) {
  constexpr std::string_view kNames[] = {"limit", "memory", "memory-fraction"};
  const StrategySettings settings = options.strategy_settings();
  return settings.limit_bytes || settings.memory_fraction ||
         std::ranges::any_of(kNames, [&](auto name) { return set.is_given(name); });
}

}  // namespace

std::optional<RecordedLimit> use_recorded_limit(const OptionSet& set, const Trace& trace,
                                                RuntimeOptions& options) {
  if (set.is_given("device") || set.is_given("device-memory") || has_limit(set, options)) return std::nullopt;
  std::optional<RecordedLimit> limit = recorded_limit(trace);
  if (limit) options.limit_bytes = limit->at_least_bytes;
  if (const int64_t spare = spare_of_failure(trace, options); spare > 0) {
    if (!limit) limit.emplace();
    limit->replay_spare_bytes = spare;
    const int64_t capacity = capacity_bytes(setup_to_fit(options));
    const int64_t present = std::min(capacity, options.limit_bytes.value_or(capacity));
    options.limit_bytes = std::max<int64_t>(present - spare, Allocator::kAlignment);
  }
  return limit;
}

Trace read_one_input(const OptionSet& set, const std::vector<std::string>& inputs, WorkloadOptions& options) {
  if (inputs.size() != 1) {
    throw InvalidArgument(fmt::format("{} inputs are given: pass one", inputs.size()));
  }
  refuse_net_beside_input(set);
  check_tracing_options(set, inputs, {"batch", "steps"});
  if (!set.is_given("steps")) options.step.steps = 0;  // the tracer's own number
  Trace trace = read_input(inputs.front(), options, set.is_given("batch") ? options.step.batch : 0);
  use_recorded_setup(set, trace, options.runtime);
  return trace;
}

std::string command_on_input(const std::string& command, const std::string& input, WorkloadOptions options,
                             int64_t batch) {
  options.step.batch = WorkloadOptions{}.step.batch;
  std::vector<std::string> words = to_words(options, OptionSet::Words::kChanged);
  if (batch > 0) words.insert(words.begin(), {"--batch", std::to_string(batch)});
  // An input brings the strategy of its program, so our usual one has to be named. `compare` takes all of
  // them.
  const std::string usual = RuntimeOptions{}.strategy;
  if (options.runtime.strategy == usual && !command.ends_with("compare")) {
    words.insert(words.end(), {"--strategy", usual});
  }
  return command_on(command, input, words);
}

}  // namespace headroom
