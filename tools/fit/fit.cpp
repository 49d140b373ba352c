// headroom fit: finds the largest batch, or the least memory, with which a net or a program of PyTorch trains
// on a device under a strategy. Predicts first; a net then runs in a process of its own.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/subcommands.h"
#include "tools/trace/command.h"
#include "tools/trace/program.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/child.h"
#include "tools/workload/device_table.h"
#include "tools/workload/fitting.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_changes.h"

namespace headroom {
namespace {

constexpr int64_t kFitSteps = 3;
// On a real GPU other processes come and go. On a simulated GPU their memory is fixed.
constexpr int64_t kMarginOfGpu = 64 * kMiB;

struct FitOptions {
  WorkloadOptions workload;
  std::string input = {};  // a recording or a program of PyTorch; empty: the net or model of the options
  std::optional<int64_t> margin_bytes;
  int64_t max_batch = 1 << 20;
  bool least_memory = false, verify = true, json = false;

  bool is_net() const { return input.empty(); }
  std::string name() const { return is_net() ? program_name(workload) : printable(input_title(input)); }
  int64_t margin() const {
    return margin_bytes.value_or(simulated_profile(workload.runtime) ? 0 : kMarginOfGpu);
  }
};

// Results of the command.
struct Found {
  Fit result;
  std::vector<TriedBatch> trials = {};                             // trials of a program, each traced
  std::vector<std::string> alternatives = {};                      // changes that make the next batch fit
  std::string assumed = {};                                        // on values that decide sizes
  std::vector<std::pair<WorkloadOptions, Measurement>> runs = {};  // of predicted sizes

  bool is_verified() const { return !runs.empty() && runs.back().second.outcome == RunOutcome::kOk; }
};

Found fit_torch_batch(const FitOptions& options, const RunSetup& setup, Progress& progress) {
  constexpr int64_t kMostTraces = 32;  // each may take a minute
  progress.start("loading " + printable(input_title(options.input)));
  const auto tracer = std::make_shared<ProgramTracer>(program_request(options.input, options.workload, 0));
  std::string model;
  const auto trace = [&](int64_t batch) {
    progress.start(fmt::format("batch {}", batch));
    TracedProgram program = tracer->trace(batch);
    model = program.model;
    progress.advance(1);
    return traced(std::move(program.trace));
  };
  BatchSearch search(trace, {.each = kMaxSearchedEvents / kMostTraces}, setup, options.margin());
  const Fit found = search.largest(options.max_batch);
  Found answer{{found}, search.trials()};
  answer.result.program = {};  // it is not run
  if (!found.next || !is_of_torch(found.next->front())) return answer;
  answer.assumed = assumed_values(found.next->front());
  progress.start(fmt::format("batch {} with checkpoints", found.next_batch));
  const TraceCheckpoints trace_again = trace_checkpoints(tracer, found.next_batch, model);
  for (const std::string& change : find_torch_changes(found.next->front(), search.setup(), trace_again)) {
    answer.alternatives.push_back(fmt::format("batch {} with {}", found.next_batch, change));
  }
  return answer;
}

Found fit_trace_memory(const FitOptions& options, Trace trace, const RunSetup& setup) {
  Traced program = traced(std::move(trace));
  Found answer{{fit_memory(program, setup, options.margin())}};
  answer.result.program = std::move(program);
  return answer;
}

std::string certainty(const FitOptions& options, const Found& found) {
  if (!options.is_net()) {
    return options.least_memory ? "predicted" : fmt::format("traced {} batches", found.trials.size());
  }
  if (found.is_verified()) {
    const int64_t steps = found.runs.back().second.steps;
    return fmt::format("ran {} step{} there", steps, steps == 1 ? "" : "s");
  }
  return options.verify ? "predicted; this host has too little memory to run it" : "predicted, not run";
}

void add_verdict(const FitOptions& options, const Found& found, Sheet& sheet) {
  const Fit& answer = found.result;
  const WorkloadOptions& workload = options.workload;
  const int64_t replicas = workload.replicas.replicas, margin = options.margin();
  const std::string where = fmt::format(
      "{}under {} on {}", replicas == 1 ? "" : fmt::format("in {} replicas ", replicas),
      workload.runtime.strategy,
      options.least_memory ? with_named_profile(workload.runtime).device : workload.runtime.device);
  const std::string batch = answer.batch > 0 && options.least_memory
                                ? fmt::format("{}, batch {}", options.name(), answer.batch)
                                : options.name();
  if (!answer.fits) {
    sheet.verdict("nothing fits", Color::kRed,
                  fmt::format(": {}{} {}", batch,
                              options.least_memory ? "," : ", not even the smallest batch,", where));
    sheet.fact(answer.stopped_by);
    return;
  }
  if (options.least_memory) {
    const std::string planned =
        workload.runtime.memory_bytes
            ? fmt::format(", planned for {}", format_bytes(*workload.runtime.memory_bytes))
            : "";
    sheet.verdict("least memory " + format_bytes(answer.device_bytes), Color::kGreen,
                  fmt::format(": {}{}, {}{}; {}", batch, planned, where,
                              options.is_net() ? "" : ", with the context and libraries of that device",
                              certainty(options, found)));
  } else {
    sheet.verdict(fmt::format("largest batch {}", answer.batch), Color::kGreen,
                  fmt::format(": {} {}; {}", batch, where, certainty(options, found)));
  }
  sheet.fact(fmt::format("{}why not {}: {}", margin > 0 ? format_bytes(margin) + " kept free; " : "",
                         options.least_memory ? "less" : "more", answer.stopped_by));
  if (!found.assumed.empty()) sheet.fact(found.assumed);
  if (!options.least_memory && workload.runtime.memory_bytes &&
      workload.runtime.split_batch == SplitBatch::kNever) {
    sheet.fact("a larger batch may run in parts: --split-batch needed");
  }
}

void add_sizes(const Found& found, Sheet& sheet) {
  const Fit& answer = found.result;
  SheetTable& table = sheet.table({.caption = "in MiB",
                                   .columns = {{""},
                                               {"batch", "", kNumber},
                                               {"device", "", kMib},
                                               {"outcome"},
                                               {"process", "", kMib},
                                               {"reserved", "", kMib, 1},
                                               {"allocated", "", kMib, 2}}});
  List trials, runs;
  const auto add_prediction = [&](int64_t batch, const Prediction& prediction, const char* otherwise) {
    const auto known = [&](int64_t bytes) { return prediction.total_bytes > 0 ? Datum(bytes) : Datum(); };
    table.add({"predicted", batch > 0 ? Datum(batch) : Datum(), answer.device_bytes,
               Cell(prediction.fits ? "fits" : otherwise, prediction.fits ? Color::kGreen : Color::kRed),
               known(prediction.total_bytes), known(prediction.reserved_bytes),
               known(prediction.allocated_bytes)});
  };
  for (const TriedBatch& trial : found.trials) {
    const Prediction& prediction = trial.prediction;
    add_prediction(trial.batch, prediction, trial.lacks_margin ? "leaves too little" : "does not fit");
    trials.push_back(Record{{"batch", trial.batch},
                            {"fits", prediction.fits},
                            {"lacks_margin", trial.lacks_margin},
                            {"predicted_total_bytes", prediction.total_bytes},
                            {"predicted_reserved_bytes", prediction.reserved_bytes},
                            {"predicted_allocated_bytes", prediction.allocated_bytes}});
  }
  if (found.trials.empty() && answer.fits) add_prediction(answer.batch, answer.prediction, "does not fit");
  for (const auto& [run, m] : found.runs) {
    table.add(
        {"run", run.step.batch, run.runtime.device_memory_bytes.value_or(answer.device_bytes),
         Cell(std::string(to_string(m.outcome)), m.outcome == RunOutcome::kOk ? Color::kGreen : Color::kRed),
         m.peak_process_bytes, m.peak_reserved_bytes, m.peak_allocated_bytes});
    const Datum figures = parse_json(to_json(m));
    Record record = std::get<Record>(figures.data());
    record.push_back({"batch", run.step.batch});
    record.push_back({"device_bytes", run.runtime.device_memory_bytes.value_or(answer.device_bytes)});
    runs.push_back(std::move(record));
  }
  sheet.set("trials", trials);
  sheet.set("runs", runs);
}

std::string next_command(const FitOptions& options, const Fit& answer) {
  WorkloadOptions next = options.workload;
  if (options.least_memory && answer.fits)
    next.runtime = with_device_memory(next.runtime, answer.device_bytes);
  if (!options.is_net()) {
    next.step.steps = WorkloadOptions{}.step.steps;  // fit has other defaults
    next.runtime.split_batch = RuntimeOptions{}.split_batch;
    return command_on_input("headroom predict", options.input, next, answer.batch);
  }
  next.step.batch = std::max<int64_t>(answer.batch, 1);
  next.runtime.record.clear();  // compare would write all runs to one file, and refuses
  if (!next.runtime.memory_bytes) next.runtime.split_batch = WorkloadOptions().runtime.split_batch;
  if (answer.program.refusal && !answer.fits && options.least_memory) return command_to_solve(next);
  return command_line(answer.fits ? "headroom compare" : "headroom predict",
                      to_words(next, OptionSet::Words::kChanged));
}

Sheet to_sheet(const FitOptions& options, const Found& found) {
  const Fit& answer = found.result;
  const RuntimeOptions& runtime = options.workload.runtime;
  Sheet sheet;
  sheet.set("fits", answer.fits);
  sheet.set(options.is_net() ? "net" : "input",
            options.is_net() ? options.name() : input_title(options.input));
  sheet.set("strategy", runtime.strategy);
  if (options.is_net()) sheet.set("plan", std::string(to_string(runtime.plan)));
  sheet.set("device", runtime.device);
  sheet.set("batch", answer.batch > 0 || !options.least_memory ? Datum(answer.batch) : Datum());
  sheet.set("device_bytes", answer.device_bytes);
  sheet.set("margin_bytes", options.margin());
  sheet.set("predicted_total_bytes", answer.prediction.total_bytes);
  sheet.set("total_is_upper_bound", answer.prediction.total_is_most);
  sheet.set("predicted_reserved_bytes", answer.prediction.reserved_bytes);
  sheet.set("predicted_allocated_bytes", answer.prediction.allocated_bytes);
  sheet.set("reserved_is_lower_bound", is_lower_bound(runtime.strategy));
  sheet.set("verified", found.is_verified());
  sheet.set("stopped_by", answer.stopped_by);
  sheet.set("alternatives", found.alternatives);
  add_verdict(options, found, sheet);
  add_sizes(found, sheet);
  if (const std::string note = lower_bound_note(runtime.strategy); !note.empty()) sheet.note(note);
  if (answer.fits && !answer.program.devices.empty())
    add_devices("predicted_devices", answer.program, answer.prediction, sheet);
  sheet.propose({next_command(options, answer)});
  for (const std::string& other : found.alternatives) sheet.next.push_back({other, {}, true});
  return sheet;
}

Found fit_net(FitOptions& options) {
  RuntimeOptions& runtime = options.workload.runtime;
  if (const auto note = lower_memory_to_free(runtime)) fmt::print(stderr, "note: {}\n", *note);
  // The answer has to do for whole epochs; only its run is short.
  const int64_t asked_steps = std::exchange(options.workload.step.steps, 0);
  Progress progress(0, "batches run");
  progress.start("predicting");
  const auto on_batch = [&](int64_t batch) { progress.start(fmt::format("predicting batch {}", batch)); };
  Found found;
  const RunElsewhere run = [&](WorkloadOptions workload,
                               const Traced& program) -> std::optional<Measurement> {
    if (!options.verify || !host_has_room(program, workload.runtime)) return std::nullopt;
    workload.step.steps = asked_steps > 0 ? asked_steps : kFitSteps;
    progress.start(fmt::format("batch {} runs", workload.step.batch));
    Measurement measured = measure_in_child(to_words(workload, OptionSet::Words::kAll));
    progress.advance(1);
    found.runs.emplace_back(workload, measured);
    return measured;
  };
  const int64_t margin = options.margin();
  found.result = options.least_memory ? fit_memory(options.workload, margin, run)
                                      : fit_batch(options.workload, margin, options.max_batch, run, on_batch);
  progress.finish();
  return found;
}

Found fit_input(FitOptions& options, const OptionSet& set, const std::vector<std::string>& inputs) {
  WorkloadOptions& workload = options.workload;
  if (!set.is_given("steps")) workload.step.steps = WorkloadOptions{}.step.steps;  // default of the tracer
  options.input = inputs.front();
  refuse_net_beside_input(set);
  if (options.least_memory && set.is_given("memory")) {
    throw InvalidArgument(
        "--memory and --least-memory exclude each other here: only the step of a net is planned for a "
        "budget");
  }
  if (inputs.size() == 1 && is_program(options.input) && !options.least_memory) {
    // There is no trace yet, because the program may need a batch.
    use_recorded_setup(set, {}, workload.runtime);
    require_one_device(workload);
    Progress progress(0, "batches traced");
    Found answer = fit_torch_batch(options, with_budget(setup_to_fit(workload.runtime)), progress);
    progress.finish();
    return answer;
  }
  Trace trace = read_one_input(set, inputs, workload);
  require_one_device(workload);
  if (!options.least_memory) {
    throw InvalidArgument(
        fmt::format("{}: a recorded trace has one batch; pass --least-memory, or the program itself",
                    printable(options.input)));
  }
  Found found = fit_trace_memory(options, std::move(trace), setup_to_fit(workload.runtime));
  if (is_program(options.input) && set.is_given("batch")) found.result.batch = workload.step.batch;
  return found;
}

}  // namespace

int run_fit(int argc, char** argv) {
  FitOptions options;
  options.workload.step.steps = kFitSteps;
  // A batch in parts fits at any size: a user who asks for the largest one means the whole.
  options.workload.runtime.split_batch = SplitBatch::kNever;
  std::vector<std::string> inputs;
  OptionSet set("headroom fit",
                "Finds the largest batch that fits on a device, or the smallest device for a batch.");
  set.add_arguments("INPUT", kInputHelp, &inputs, false);
  set.take_command();
  add_question_options(set, options.workload);
  set.add_bytes(
      "margin",
      "Device memory to leave free (default: 64MiB on a real GPU, where other processes come and go; "
      "none on a simulated GPU)",
      &options.margin_bytes);
  set.add_integer("most", "Largest batch to try", &options.max_batch, 1, int64_t{1} << 40);
  set.add_switch("least-memory", "Find the smallest device for --batch instead of the largest batch",
                 &options.least_memory);
  set.add_switch("verify", "Run --steps steps with the found batch in a separate process", &options.verify);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
  set.set_examples(
      "  headroom fit --device rtx-3090 -- python train.py         largest batch of a PyTorch program\n"
      "  headroom fit train.py:make_step --device rtx-3090         of a function that returns a step\n"
      "  headroom fit snapshot.pickle --least-memory               the smallest GPU for a recorded run\n"
      "  headroom fit --net unet                                   largest batch on a simulated 2 GB laptop\n"
      "  headroom fit --net unet --device cuda --strategy caching --margin 256MiB --steps 50\n"
      "  headroom fit --net unet --device sim:four-2080ti --replicas 4 --shard-optimizer\n"
      "  headroom fit --net unet --batch 64 --least-memory         the smallest GPU for this batch\n"
      "  headroom fit --net residual --device sim:h200 --verify=false --json | jq .batch\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  prepare_inputs(set, inputs, options.workload);
  if (inputs.empty()) pack_for_memory(set, options.workload.runtime);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  const Found found = inputs.empty() ? fit_net(options) : fit_input(options, set, inputs);
  print(to_sheet(options, found), options.json, set.terminal());
  return found.result.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
