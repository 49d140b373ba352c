#include "tools/solve/solve_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/report/verdict.h"
#include "tools/trace/command.h"
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

Record figures_of(const ProgramTrial& trial) {
  const ProgramChanges& changes = trial.changes;
  return {{"keeps", trial.fits()},
          {"least_memory_bytes", trial.least_memory_bytes},
          {"process_bytes", trial.prediction.total_bytes},
          {"reserved_bytes", trial.prediction.reserved_bytes},
          {"allocated_bytes", trial.prediction.allocated_bytes},
          {"requested_bytes", trial.prediction.requested_bytes},
          {"ms_per_step", 1e-3 * trial.us},
          {"checkpoints", changes.checkpoints},
          {"save_on_cpu", changes.offload},
          {"parts", changes.passes},
          {"loss_parts", changes.loss_parts},
          {"autocast", changes.autocast},
          {"fused_optimizer", changes.fused},
          {"use_cache", !changes.uncached},
          {"expandable_segments", trial.has_expandable_segments},
          {"error", trial.error}};
}

// The program, and the budget for it.
struct Question {
  std::string input;
  WorkloadOptions options;  // with the device and the strategy of the input
  int64_t memory_bytes = 0, batch = 0;
  bool is_recording = false;
};

// Begins with the question in JSON, then the verdict.
Sheet sheet_of(const Question& question, bool fits, const std::string& taken) {
  const auto& [input, options, memory, batch, is_recording] = question;
  const std::string device = options.runtime.device;
  Sheet sheet = solve::sheet_of(
      fmt::format("{}{}, in {} on {}", printable(input_title(input)),
                  batch > 0 ? fmt::format(", batch {}", batch) : "", format_bytes(memory), device),
      fits, taken);
  sheet.set("input", input_title(input));
  sheet.set("device", device);
  sheet.set("strategy", options.runtime.strategy);
  sheet.set("memory_bytes", memory);
  sheet.set("batch", batch > 0 ? Datum(batch) : Datum());
  return sheet;
}

// Removes those that could not be traced.
std::vector<ProgramTrial> traced(std::vector<ProgramTrial> trials) {
  std::erase_if(trials, [](const ProgramTrial& trial) { return !trial.error.empty(); });
  return trials;
}

void add_trials(const ProgramSolution& solution, Sheet& sheet) {
  SheetTable table{.caption = "tried:",
                   .heading = "Tried",
                   .columns = {{"changes", "", kWrappedText},
                               {"verdict"},
                               {"least MiB", "", kMib},
                               {"allocated", "", kMib, 2},
                               {"time", "", kChange, 1}}};
  List list;
  for (const ProgramTrial& trial : solution.trials) list.emplace_back(figures_of(trial));
  const std::vector<ProgramTrial> trials = traced(solution.trials);
  const std::vector<std::string> labels = describe_apart(trials);
  for (size_t i = 0; i < trials.size(); ++i) {
    const ProgramTrial& trial = trials[i];
    const int64_t least = trial.least_memory_bytes;
    table.add({labels[i],
               {trial.fits() ? "fits" : "does not fit", trial.fits() ? Color::kGreen : Color::kRed},
               least > 0 ? Datum(least) : Datum(),
               trial.prediction.allocated_bytes,
               solution.plain.us > 0 ? Datum(more_time(trial, solution.plain)) : Datum()});
  }
  if (solution.trials.size() > 1) sheet.table(std::move(table));
  sheet.set("trials", list);
}

// Finds memory that the program accumulates at each step, so that any memory fills up.
std::optional<report::Finding> find_growth(const Trace& trace) {
  constexpr Cause kGrows[] = {Cause::kLeak, Cause::kGraphsKept, Cause::kLossesKept};
  const report::Verdict verdict = report::judge_history(report::History(trace), report::Steps(trace));
  for (const report::Finding& finding : verdict.findings) {
    if (std::ranges::find(kGrows, finding.cause) != std::end(kGrows)) return finding;
  }
  return std::nullopt;
}

// No budget is enough.
Sheet to_sheet(const report::Finding& growth, const Question& question) {
  const std::string reason =
      fmt::format("{}: {}; no amount of memory is enough in the long run", growth.title, growth.sentence);
  Sheet sheet = sheet_of(question, false, {});
  sheet.set("keeps", false);
  sheet.set("least_memory_bytes", 0);
  sheet.set("error", reason);
  sheet.set("advice", growth.advice);
  sheet.fact(reason);
  if (!growth.advice.empty()) sheet.fact("try: " + growth.advice);
  TracingOptions traced;
  traced.device = question.options.runtime.device;
  if (traced.device.starts_with(kSimulated)) traced.device.erase(0, kSimulated.size());
  if (question.batch > 0) traced.batch = question.batch;
  if (question.options.step.steps > 0) traced.steps = question.options.step.steps;
  sheet.propose({command_on("headroom report", question.input, to_words(question.input, traced))});
  return sheet;
}

// `given`: the options as they were given, for the next command.
Sheet to_sheet(const ProgramSolution& solution, const Question& question, const WorkloadOptions& given) {
  const auto& [plain, chosen, split, model, name, normalizes_batches, trials] = solution;
  const int64_t batch = question.batch;
  Sheet sheet = sheet_of(question, solution.fits(),
                         fmt::format("{}: takes {}{}", describe(chosen),
                                     format_bytes(chosen.prediction.total_bytes), time_text(chosen, plain)));
  sheet.set("is_estimate", question.is_recording);
  sheet.set("model", model);
  for (Field& field : figures_of(chosen)) sheet.set(std::move(field.key), std::move(field.value));
  sheet.set("process_bytes_without", plain.prediction.total_bytes);
  sheet.set("ms_per_step_without", 1e-3 * plain.us);
  if (!solution.fits() && chosen.least_memory_bytes > 0) {
    sheet.fact(fmt::format("the minimum: --memory {}, {}{}", exact_size(chosen.least_memory_bytes),
                           with_text(chosen), time_text(chosen, plain)));
  }
  if (!plain.fits() && plain.least_memory_bytes > 0)
    sheet.fact("unchanged, it needs " + format_bytes(plain.least_memory_bytes));
  if (question.is_recording) {
    sheet.fact(
        "estimated from the recording (checkpointing only); pass train.py:make_step to try every change");
  }
  sheet.code({.title = "change the program:", .key = "lines", .lines = torch_lines(solution, chosen, batch)});
  const std::vector<std::string> effects = effects_of(solution, chosen);
  for (const std::string& effect : effects) sheet.note("note: " + effect);
  sheet.set("effects", effects);
  if (split) {
    sheet.note(fmt::format("with --split-batch cheaper: {}{}", describe(*split), time_text(*split, plain)));
  }
  sheet.set("with_split_batch", split ? Datum(figures_of(*split)) : Datum());
  add_trials(solution, sheet);
  WorkloadOptions next = given;
  if (solution.fits()) {
    const std::string changed = chosen.changes == ProgramChanges() ? "" : "  # once it is changed";
    sheet.propose({command_on_input("headroom predict", question.input, next, batch) + changed});
  } else if (chosen.least_memory_bytes > 0) {
    next.runtime.memory_bytes = chosen.least_memory_bytes;
    next.runtime.limit_bytes.reset();
    next.runtime.limit_scope = LimitScope::kPool;
    sheet.propose({command_on_input("headroom solve", question.input, next, batch)});
  }
  return sheet;
}

}  // namespace

Sheet solve::sheet_of(std::string title, bool fits, const std::string& taken) {
  Sheet sheet;
  if (fits) {
    sheet.verdict("fits", Color::kGreen, fmt::format(": {}: {}", title, taken));
  } else {
    sheet.verdict("does not fit", Color::kRed, ": " + title);
  }
  sheet.title = std::move(title);
  return sheet;
}

void solve::write(const Sheet& sheet, const std::string& html, bool json, const Terminal& terminal) {
  if (!html.empty()) {
    const std::string page = to_html(sheet);
    const std::string_view parts[] = {page};
    write_file(html, parts);
  }
  print(sheet, json, terminal);
}

namespace {

// Returns the memory that the device and the budget, or the limit, leave to the process.
int64_t budget_of(const RunSetup& setup) {
  const RuntimeOptions& options = setup.options;
  const int64_t free = free_bytes(setup);
  const int64_t overhead = options.limit_scope == LimitScope::kPool ? setup.device.overhead_bytes() : 0;
  return std::min(free, options.memory_bytes.value_or(options.limit_bytes.value_or(free) + overhead));
}

}  // namespace

int solve_trace(const OptionSet& set, const std::string& input, WorkloadOptions options,
                const std::string& html, bool json) {
  require_one_device(options);
  refuse_net_beside_input(set);
  check_tracing_options(set, {input}, {"batch", "steps"});
  if (!set.is_given("steps")) options.step.steps = 0;  // the tracer's own number
  const bool is_recording = !is_program(input);
  const Precision precision = options.model.precision;
  std::optional<int64_t> whole;
  if (set.is_given("batch") && !is_recording && options.step.batch > 0) whole = options.step.batch;
  WorkloadOptions given = options;

  std::unique_ptr<ProgramTracer> tracer;
  TracedProgram recorded;
  if (is_recording) {
    recorded = of_recording(read_input(input, options, 0));
    use_recorded_setup(set, recorded.trace, options.runtime);
    use_recorded_limit(set, recorded.trace, options.runtime);
  } else {
    ProgramRequest request = program_request(input, options, whole.value_or(0));
    if (!set.is_given("device")) options.runtime.device = "sim:" + request.device;
    if (!set.is_given("strategy")) options.runtime.strategy = "caching";
    tracer = std::make_unique<ProgramTracer>(std::move(request));
  }
  RunSetup setup = setup_to_fit(options.runtime);
  const ProgramSpeed speed = speed_of_program(setup.device);
  Progress progress(0, "traces");
  TracedProgram plain = std::move(recorded);
  if (!is_recording) {
    progress.start(describe({}));
    plain = tracer->trace(whole, {}, &speed);
    progress.advance(1);
  }
  const int64_t memory = budget_of(with_libraries(traced_here(plain.trace), setup));
  setup.options.memory_bytes = memory;
  setup = with_budget(std::move(setup));
  const Question question{input, options, memory, whole.value_or(0), is_recording};
  if (const std::optional<report::Finding> growth = find_growth(plain.trace)) {
    progress.finish();
    solve::write(to_sheet(*growth, question), html, json, set.terminal());
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
  if (!set.is_given("strategy")) given.runtime.strategy = recorded_strategy(plain.trace);
  const ProgramSolution solution =
      is_recording ? solve_recording(trace, setup)
                   : solve_torch(trace, setup, options.runtime.split_batch, whole,
                                 precision == Precision::kF32 ? "" : std::string(to_string(precision)));
  progress.finish();
  solve::write(to_sheet(solution, question, given), html, json, set.terminal());
  return solution.fits() ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
