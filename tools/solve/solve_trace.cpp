#include "tools/solve/solve_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/report/verdict.h"
#include "tools/solve/solve_page.h"
#include "tools/trace/tracing_options.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/input.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/solve_torch.h"
#include "tools/workload/torch_changes.h"
#include "tools/workload/torch_lines.h"

namespace headroom {
namespace {

constexpr std::string_view kSimulated = "sim:";

ProgramSpeed speed_of_program(const DeviceProfile& profile) {
  const DeviceSpeed speed = speed_of(profile);
  return {.flops_per_us = speed.flops_per_us,
          .half_flops_per_us = speed.half_factor * speed.flops_per_us,
          .bytes_per_us = speed.bytes_per_us,
          .link_bytes_per_us = 1e3 * link_gb_per_s(profile),
          .launch_us = speed.launch_us};
}

// A trace whose times are in proportion to bytes.
TracedProgram of_recording(const Trace& trace) {
  TracedProgram program;
  program.trace = trace;
  program.modules = recorded_modules(trace);
  return program;
}

TracedProgram with_changes(const TracedProgram& recorded, const ProgramChanges& changes) {
  TracedProgram program = recorded;
  program.trace = with_checkpoints(recorded.trace, changes.checkpoints);
  return program;
}

double more_time(const ProgramTrial& trial, const ProgramTrial& plain) {
  return plain.us > 0 ? 100 * (trial.us / plain.us - 1) : 0;
}

// "with 12 checkpoints"; "as it is".
std::string with_text(const ProgramTrial& trial) {
  const bool is_changed = trial.has_expandable_segments || trial.changes != ProgramChanges();
  return (is_changed ? "with " : "") + describe(trial);
}

std::string time_text(const ProgramTrial& trial, const ProgramTrial& plain) {
  return plain.us > 0 ? fmt::format(", {:+.1f} % time", more_time(trial, plain)) : "";
}

nlohmann::ordered_json to_json(const ProgramTrial& trial) {
  const ProgramChanges& changes = trial.changes;
  nlohmann::ordered_json json;
  json["keeps"] = trial.fits();
  json["least_memory_bytes"] = trial.least_memory_bytes;
  json["process_bytes"] = trial.prediction.total_bytes;
  json["reserved_bytes"] = trial.prediction.reserved_bytes;
  json["allocated_bytes"] = trial.prediction.allocated_bytes;
  json["requested_bytes"] = trial.prediction.requested_bytes;
  json["ms_per_step"] = 1e-3 * trial.us;
  json["checkpoints"] = changes.checkpoints;
  json["save_on_cpu"] = changes.offload;
  json["parts"] = changes.passes;
  json["autocast"] = changes.autocast;
  json["fused_optimizer"] = changes.fused;
  json["use_cache"] = !changes.uncached;
  json["expandable_segments"] = trial.has_expandable_segments;
  json["error"] = trial.error;
  return json;
}

// Returns the question, with which every answer begins.
nlohmann::ordered_json to_json(const std::string& input, const WorkloadOptions& options, int64_t memory,
                               int64_t batch) {
  nlohmann::ordered_json json;
  json["input"] = input;
  json["device"] = options.runtime.device;
  json["strategy"] = options.runtime.strategy;
  json["memory_bytes"] = memory;
  json["batch"] = batch > 0 ? nlohmann::ordered_json(batch) : nlohmann::ordered_json();
  return json;
}

std::string to_json(const ProgramSolution& solution, const std::string& input, const WorkloadOptions& options,
                    int64_t memory, int64_t batch, bool is_recording) {
  nlohmann::ordered_json json = to_json(input, options, memory, batch);
  json["is_estimate"] = is_recording;
  json["model"] = solution.model;
  json.update(to_json(solution.chosen));
  json["process_bytes_without"] = solution.plain.prediction.total_bytes;
  json["ms_per_step_without"] = 1e-3 * solution.plain.us;
  json["lines"] = torch_lines(solution, solution.chosen, batch);
  json["effects"] = effects_of(solution, solution.chosen);
  json["with_split_batch"] = solution.split ? to_json(*solution.split) : nlohmann::ordered_json();
  json["trials"] = nlohmann::ordered_json::array();
  for (const ProgramTrial& trial : solution.trials) json["trials"].push_back(to_json(trial));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Removes those that could not be traced.
std::vector<ProgramTrial> traced(std::vector<ProgramTrial> trials) {
  std::erase_if(trials, [](const ProgramTrial& trial) { return !trial.error.empty(); });
  return trials;
}

void print_trials(const ProgramSolution& solution, const Terminal& terminal) {
  const bool has_times = solution.plain.us > 0;
  std::vector<TableColumn> columns = {{.title = "changes", .wraps = true},
                                      {"verdict"},
                                      {.title = "least MiB", .is_number = true},
                                      {.title = "allocated", .is_number = true, .drop = 2}};
  if (has_times) columns.push_back({.title = "time", .is_number = true, .drop = 1});
  Table table(columns);
  const std::vector<ProgramTrial> trials = traced(solution.trials);
  const std::vector<std::string> labels = describe_apart(trials);
  for (size_t i = 0; i < trials.size(); ++i) {
    const ProgramTrial& trial = trials[i];
    std::vector<TableCell> row = {
        labels[i],
        {trial.fits() ? "fits" : "does not fit", trial.fits() ? Color::kGreen : Color::kRed},
        trial.least_memory_bytes > 0 ? format_mib(trial.least_memory_bytes) : "-",
        format_mib(trial.prediction.allocated_bytes)};
    if (has_times) row.emplace_back(fmt::format("{:+.1f} %", more_time(trial, solution.plain)));
    table.add(row);
  }
  fmt::print("\ntried:\n{}", table.text(terminal));
}

// Finds memory that the program accumulates at each step, so that any memory fills up.
std::optional<report::Finding> find_growth(const Trace& trace) {
  constexpr Cause kGrows[] = {Cause::kLeak, Cause::kGraphsKept, Cause::kLossesKept};
  const report::Verdict verdict = report::judge_history(report::History(trace), report::Steps(trace));
  for (const report::Finding& finding : verdict.findings) {
    if (std::find(std::begin(kGrows), std::end(kGrows), finding.cause) != std::end(kGrows)) return finding;
  }
  return std::nullopt;
}

std::string title_of(const std::string& input, int64_t batch, int64_t memory, const std::string& device) {
  return fmt::format("{}{}, in {} on {}", printable(input), batch > 0 ? fmt::format(", batch {}", batch) : "",
                     format_bytes(memory), device);
}

void write_page(const std::string& path, const solve::SolvePage& page) {
  if (path.empty()) return;
  const std::string html = solve::to_html(page);
  const std::string_view parts[] = {html};
  write_file(path, parts);
}

solve::SolvePage page_of(const ProgramSolution& solution, const std::string& title, int64_t memory,
                         int64_t batch) {
  const ProgramTrial& chosen = solution.chosen;
  solve::SolvePage page{.keeps = solution.fits(), .title = title, .memory_bytes = memory};
  if (page.keeps) {
    page.verdict =
        fmt::format("Fits: {}: takes {}{}.", describe(chosen), format_bytes(chosen.prediction.total_bytes),
                    time_text(chosen, solution.plain));
  } else if (chosen.least_memory_bytes > 0) {
    page.verdict =
        fmt::format("Does not fit; the minimum: {}, {}{}.", format_bytes(chosen.least_memory_bytes),
                    with_text(chosen), time_text(chosen, solution.plain));
  } else {
    page.verdict = "Does not fit.";
  }
  for (const std::string& effect : effects_of(solution, chosen)) page.facts.push_back(effect);
  for (const std::string& line : torch_lines(solution, chosen, batch)) page.code.push_back(printable(line));
  solve::PageTable tried{
      "Tried", {{"changes"}, {"verdict"}, {"least MiB", true}, {"allocated", true}, {"time, %", true}}, {}};
  const std::vector<ProgramTrial> trials = traced(solution.trials);
  const std::vector<std::string> labels = describe_apart(trials);
  for (size_t i = 0; i < trials.size(); ++i) {
    const ProgramTrial& trial = trials[i];
    const bool is_known = trial.least_memory_bytes > 0;
    tried.rows.push_back({labels[i], trial.fits() ? "fits" : "does not fit",
                          is_known ? format_mib(trial.least_memory_bytes) : "",
                          format_mib(trial.prediction.allocated_bytes),
                          fmt::format("{:+.1f}", more_time(trial, solution.plain))});
  }
  page.tables = {std::move(tried)};
  return page;
}

// No budget is enough.
void print_growth(const report::Finding& growth, const std::string& input, const WorkloadOptions& options,
                  int64_t memory, int64_t batch, bool json, const Terminal& terminal) {
  const std::string reason =
      fmt::format("{}: {}; no amount of memory is enough in the long run", growth.title, growth.sentence);
  if (json) {
    nlohmann::ordered_json object = to_json(input, options, memory, batch);
    object["keeps"] = false;
    object["least_memory_bytes"] = 0;
    object["error"] = reason;
    object["advice"] = growth.advice;
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print("{}{}\n", terminal.painted("does not fit", Color::kRed),
             terminal.wrapped(": " + title_of(input, batch, memory, options.runtime.device), 0, 12));
  fmt::print("{}\n", terminal.wrapped(printable(reason)));
  if (!growth.advice.empty()) fmt::print("{}\n", terminal.wrapped("try: " + printable(growth.advice)));
  TracingOptions traced;
  traced.device = options.runtime.device;
  if (traced.device.starts_with(kSimulated)) traced.device.erase(0, kSimulated.size());
  if (batch > 0) traced.batch = batch;
  if (options.step.steps > 0) traced.steps = options.step.steps;
  fmt::print("\nnext: {}\n", command_line("headroom report " + shell_word(input), to_words(input, traced)));
}

// `device`: what was planned for, where the options leave that to the input.
void print(const ProgramSolution& solution, const std::string& input, const WorkloadOptions& options,
           const std::string& device, int64_t memory, int64_t batch, bool is_recording,
           const Terminal& terminal) {
  const ProgramTrial& chosen = solution.chosen;
  const std::string what = title_of(input, batch, memory, device);
  if (solution.fits()) {
    fmt::print("{}{}\n", terminal.painted("fits", Color::kGreen),
               terminal.wrapped(fmt::format(": {}: {}: takes {}{}", what, describe(chosen),
                                            format_bytes(chosen.prediction.total_bytes),
                                            time_text(chosen, solution.plain)),
                                0, 4));
  } else {
    fmt::print("{}{}\n", terminal.painted("does not fit", Color::kRed),
               terminal.wrapped(": " + what, 0, 12));
    if (chosen.least_memory_bytes > 0) {
      fmt::print("{}\n", terminal.wrapped(fmt::format("the minimum: --memory {}, {}{}",
                                                      exact_size(chosen.least_memory_bytes),
                                                      with_text(chosen), time_text(chosen, solution.plain))));
    }
  }
  if (!solution.plain.fits() && solution.plain.least_memory_bytes > 0) {
    fmt::print("unchanged, it needs {}\n", format_bytes(solution.plain.least_memory_bytes));
  }
  if (is_recording) {
    fmt::print("{}\n", terminal.wrapped("estimated from the recording (checkpointing only); pass "
                                        "train.py:make_step to try every change"));
  }
  if (const std::vector<std::string> lines = torch_lines(solution, chosen, batch); !lines.empty()) {
    fmt::print("\nchange the program:\n");
    for (const std::string& line : lines) fmt::print("    {}\n", printable(line));
  }
  for (const std::string& effect : effects_of(solution, chosen)) {
    fmt::print("{}\n", terminal.wrapped("note: " + effect));
  }
  if (solution.split) {
    fmt::print("{}\n",
               terminal.wrapped(fmt::format("with --split-batch cheaper: {}{}", describe(*solution.split),
                                            time_text(*solution.split, solution.plain))));
  }
  if (solution.trials.size() > 1) print_trials(solution, terminal);
  WorkloadOptions next = options;
  if (solution.fits()) {
    const std::string changed = chosen.changes == ProgramChanges() ? "" : "  # once it is changed";
    fmt::print("\nnext: {}{}\n", command_on_input("headroom predict", input, next, batch), changed);
  } else if (chosen.least_memory_bytes > 0) {
    next.runtime.memory_bytes = chosen.least_memory_bytes;
    fmt::print("\nnext: {}\n", command_on_input("headroom solve", input, next, batch));
  }
}

}  // namespace

bool is_trace_input(const std::string& text) {
  if (is_program(text)) return true;
  require_function(text);
  if (text.ends_with(".onnx")) return false;
  // A model's file begins with the version of its format, the first field of a message.
  constexpr int kFirstFieldOfModel = 8;
  const int first = std::ifstream(text, std::ios::binary).get();
  return first != std::ifstream::traits_type::eof() && first != kFirstFieldOfModel;
}

namespace {

// Returns the memory that the device and the limit leave to the process.
int64_t usual_budget(const RunSetup& setup) {
  const int64_t free = free_bytes(setup);
  const int64_t overhead = setup.options.limit_scope == LimitScope::kPool ? setup.device.overhead_bytes() : 0;
  return std::min(free, setup.options.limit_bytes.value_or(free) + overhead);
}

}  // namespace

int solve_trace(const OptionSet& set, const std::string& input, WorkloadOptions options,
                const std::string& html, bool json) {
  require_one_device(options);
  if (set.is_given("net")) throw InvalidArgument("an input and --net exclude each other: pass one");
  check_tracing_options(set, {input}, {"batch", "steps"});
  if (!set.is_given("steps")) options.step.steps = 0;  // the tracer's own number
  const bool is_recording = !is_program(input);
  ProgramFreedom freedom{.split_batch = options.runtime.split_batch, .is_recording = is_recording};
  if (set.is_given("batch") && !is_recording) freedom.batch = options.step.batch;
  if (options.model.precision != Precision::kF32) freedom.autocast = to_string(options.model.precision);
  const WorkloadOptions given = options;

  std::unique_ptr<ProgramTracer> tracer;
  TracedProgram recorded;
  if (is_recording) {
    recorded = of_recording(read_input(input, options, 0));
    use_recorded_setup(set, recorded.trace, options.runtime);
    print_traced_device_note(set, recorded.trace, options.runtime);
    use_recorded_limit(set, recorded.trace, options.runtime);
  } else {
    ProgramRequest request = program_request(input, options, freedom.batch);
    if (!set.is_given("device")) options.runtime.device = "sim:" + request.device;
    if (!set.is_given("strategy")) options.runtime.strategy = "caching";
    tracer = std::make_unique<ProgramTracer>(std::move(request));
  }
  RunSetup setup = setup_to_fit(options.runtime);
  const int64_t memory = options.runtime.memory_bytes.value_or(usual_budget(setup));
  setup = with_budget(std::move(setup), memory);

  const ProgramSpeed speed = speed_of_program(setup.device);
  Progress progress(0, "traces");
  const std::optional<int64_t> whole = freedom.batch > 0 ? std::optional(freedom.batch) : std::nullopt;
  TracedProgram plain = std::move(recorded);
  if (!is_recording) {
    progress.start(describe({}));
    plain = tracer->trace(whole, {}, &speed);
    progress.advance(1);
  }
  if (const std::optional<report::Finding> growth = find_growth(plain.trace)) {
    progress.finish();
    write_page(html, {.title = title_of(input, freedom.batch, memory, options.runtime.device),
                      .verdict = fmt::format("Does not fit: {}: {}.", growth->title, growth->sentence),
                      .facts = {growth->advice},
                      .memory_bytes = memory});
    print_growth(*growth, input, options, memory, freedom.batch, json, set.terminal());
    return kExitOutOfMemory;
  }
  const TraceProgram trace = [&](std::optional<int64_t> batch, const ProgramChanges& changes) {
    if (batch == whole && changes == ProgramChanges()) return plain;
    progress.start(describe({.changes = changes}));
    TracedProgram program =
        is_recording ? with_changes(plain, changes) : tracer->trace(batch, changes, &speed);
    progress.advance(1);
    return program;
  };
  const ProgramSolution solution = solve_torch(trace, setup, freedom);
  progress.finish();
  write_page(html, page_of(solution, title_of(input, freedom.batch, memory, options.runtime.device), memory,
                           freedom.batch));
  if (json) {
    fmt::print("{}\n", to_json(solution, input, options, memory, freedom.batch, is_recording));
  } else {
    print(solution, input, given, options.runtime.device, memory, freedom.batch, is_recording,
          set.terminal());
  }
  return solution.fits() ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
