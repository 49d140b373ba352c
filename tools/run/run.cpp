// headroom run: runs a few real steps of a net's training, a model's forward pass or plays a trace, and says
// what that took; with a command after --, that program. compare and fit run it in processes of their own.

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "sheet/writers.h"
#include "tools/gpu_program.h"
#include "tools/run/guarded.h"
#include "tools/run/verdict.h"
#include "tools/subcommands.h"
#include "tools/workload/explain_failure.h"
#include "tools/workload/input.h"
#include "tools/workload/measure.h"
#include "trace/trace.h"

namespace headroom {
namespace {

Sheet to_sheet(const Measurement& m, const std::optional<OutOfMemoryReport>& report,
               const std::string& workload, const WorkloadOptions& options) {
  const RuntimeOptions& runtime = options.runtime;
  Sheet sheet;
  const Datum figures = parse_json(to_json(m));
  for (const Field& field : std::get<Record>(figures.data())) sheet.set(field.key, field.value);
  sheet.set("out_of_memory", report ? parse_json(to_json(*report)) : Datum());
  sheet.verdict(std::string(to_string(m.outcome)), m.outcome == RunOutcome::kOk ? Color::kGreen : Color::kRed,
                fmt::format(": {} under {} on {}, {} step{}", workload, runtime.strategy, runtime.device,
                            m.steps, m.steps == 1 ? "" : "s"));
  if (report) {
    sheet.lines(to_text(*report));
  } else if (!m.error.empty()) {
    sheet.fact(m.error);
  }
  SheetTable& peaks = sheet.table({.caption = "peaks in MiB",
                                   .columns = {{"device", "", kMib},
                                               {"process", "", kMib},
                                               {"reserved", "", kMib},
                                               {"allocated", "", kMib, 3},
                                               {"overhead", "", kMib, 2},
                                               {"fragmentation", "", kRatio, 4},
                                               {"ms/step", "", kMsOfSeconds, 1}}});
  peaks.add({m.peak_device_bytes, m.peak_process_bytes, m.peak_reserved_bytes, m.peak_allocated_bytes,
             m.overhead_bytes, m.fragmentation, m.seconds_per_step});
  if (m.devices.size() > m.replicas.size()) {  // a net that is placed on several devices
    SheetTable& devices = sheet.table({.columns = {{"device"},
                                                   {"device", "", kMib},
                                                   {"process", "", kMib},
                                                   {"reserved", "", kMib},
                                                   {"allocated", "", kMib}}});
    for (const DeviceResult& d : m.devices) {
      devices.add({d.device, d.peak_device_bytes, d.peak_process_bytes, d.peak_reserved_bytes,
                   d.peak_allocated_bytes});
    }
  }
  if (m.replicas.size() < 2) return sheet;
  SheetTable& replicas = sheet.table({.columns = {{"replica"},
                                                  {"device", "", kMib},
                                                  {"reserved", "", kMib},
                                                  {"allocated", "", kMib},
                                                  {"optimizer", "", kMib, 2},
                                                  {"weights", "", kText, 1}}});
  for (const ReplicaResult& r : m.replicas) {
    replicas.add({r.device, r.peak_device_bytes, r.peak_reserved_bytes, r.peak_allocated_bytes,
                  r.optimizer_bytes, r.weights_checksum});
  }
  return sheet;
}

// Values up to this many are printed as JSON.
constexpr int64_t kPrintedElements = 1024;

List numbers_of(const NamedTensor& tensor) {
  List numbers;
  const auto add = [&]<typename T>(T number) {
    for (size_t at = 0; at < tensor.data.size(); at += sizeof number) {
      std::memcpy(&number, tensor.data.data() + at, sizeof number);
      numbers.emplace_back(number);
    }
  };
  if (tensor.spec.dtype == DType::kF32) add(float());
  if (tensor.spec.dtype == DType::kI32) add(int32_t());
  if (tensor.spec.dtype == DType::kU8) add(uint8_t());
  return numbers;
}

// Prints what the forward pass computed, with the numbers of small tensors.
void add_outputs(const std::vector<NamedTensor>& outputs, const std::string& path, Sheet& sheet) {
  Record all;
  std::string text;
  for (const NamedTensor& output : outputs) {
    const Shape& shape = output.spec.shape;
    Record one = {{"shape", List(shape.begin(), shape.end())},
                  {"dtype", std::string(to_string(output.spec.dtype))}};
    if (shape.elements() <= kPrintedElements) one.push_back({"values", numbers_of(output)});
    all.push_back({output.name, std::move(one)});
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(output.name), to_string(output.spec));
  }
  sheet.set("outputs", all);
  if (!path.empty() && !outputs.empty()) sheet.fact(fmt::format("wrote {} to {}", text, printable(path)));
}

// A run that answers is a forward pass, once, of all rows of its data.
void prepare_answer(const OptionSet& set, bool is_asked, WorkloadOptions& options) {
  if (options.data.empty() && !is_asked && options.model.states.empty()) return;
  if (!options.model.is_given()) {
    throw InvalidArgument(fmt::format("--{} needs --model", is_asked                ? "outputs"
                                                            : !options.data.empty() ? "data"
                                                                                    : "state"));
  }
  options.inference = true;
  if (!set.is_given("steps")) options.step.steps = 1;
  if (options.data.empty()) return;
  const std::shared_ptr<const onnx::Model> model = read_model(options.model);
  const auto states = options.model.states_of(*model);
  const int64_t rows = ModelData(options.data, states).batch(*model);
  if (set.is_given("batch") && options.step.batch != rows) {
    throw InvalidArgument(fmt::format("{}: has {} rows, which are one batch: leave --batch {} out",
                                      options.data, rows, options.step.batch));
  }
  options.step.batch = rows;
}

std::string command_after_run(RunOutcome outcome, const std::optional<OutOfMemoryReport>& report,
                              const std::string& path, const WorkloadOptions& options) {
  const std::string trace = path.empty() ? "" : " --trace " + shell_word(path);
  const TriedChange* change = report ? report->smallest() : nullptr;
  // It was refused for its budget if there is no report.
  if (outcome == RunOutcome::kOutOfMemory && !report && path.empty()) return command_to_solve(options);
  if (change == nullptr) {
    WorkloadOptions compared = options;
    compared.runtime.strategy = RuntimeOptions{}.strategy;  // all of them
    compared.runtime.record.clear();
    if (compared.step.steps == (path.empty() ? kStepsOfRun : 1))
      compared.step.steps = 0;  // compare's default
    return command_line("headroom compare" + trace, to_words(compared, OptionSet::Words::kChanged));
  }
  const bool has_larger_budget = options.runtime.memory_bytes && !path.empty() &&
                                 free_bytes(change->setup) <= free_bytes(setup_of(options.runtime));
  if (change->kind == ChangeKind::kDevice && !has_larger_budget)
    return fmt::format("headroom devices  # for {}", change->what);
  const WorkloadOptions changed = with_change(options, *change);
  std::vector<std::string> words = to_words(changed, OptionSet::Words::kChanged);
  // A trace brings the strategy of its program, so our usual one has to be named.
  if (!path.empty() && changed.runtime.strategy == RuntimeOptions{}.strategy)
    words.insert(words.end(), {"--strategy", changed.runtime.strategy});
  return command_line("headroom run" + trace, words);
}

}  // namespace

int run_run(int argc, char** argv) {
  if (has_command(argc, argv)) return run_guarded(argc, argv);
  WorkloadOptions options;
  options.step.steps = kStepsOfRun;
  std::string path, outputs;
  bool json = false;
  OptionSet set(
      "headroom run",
      "Runs a program after -- under a limit on GPU memory; or trains a net for a few steps, or replays "
      "a trace, and measures memory and time.");
  set.take_command();
  add_workload_options(set, options);
  set.add_text("trace", "Replay the trace in this file instead of training a net; --steps repeats it", &path);
  set.add_text("data", "With --model: run the forward pass on this safetensors file: inputs by name (or x)",
               &options.data);
  set.add_text("outputs", "With --model: write what the forward pass computes to this safetensors file",
               &outputs);
  set.add_switch("json", "Print one line of JSON, sizes in bytes", &json);
  GuardOptions command;
  add_command_options(set, command);
  set.set_examples(
      "  headroom run --net unet --batch 16                      on a simulated 2 GB laptop\n"
      "  headroom run --net attention --device cuda --steps 100  on a GPU\n"
      "  headroom run --model net.onnx --data x.safetensors --outputs y.safetensors   the model's answer\n"
      "  headroom run --trace run.csv.gz --device sim:h200 --strategy mapped\n"
      "  headroom run --limit 1GiB -- python train.py            any program under a limit\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  for (const char* name : {"soft", "leave", "reserve", "result"}) {
    if (set.is_on_command_line(name))
      throw InvalidArgument(fmt::format("--{} needs a program after --", name));
  }
  if (!command.failure.empty()) {
    fmt::print("{}", verdict_of_file(command.failure));
    return kExitDone;
  }
  if (path.empty()) pack_for_memory(set, options.runtime);
  if (cuda_ordinal(options.runtime.device)) continue_in_gpu_program(argv);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  // A recording has all steps of its program.
  const int64_t usual_steps = path.empty() ? kStepsOfRun : 1;
  if (!set.is_given("steps") || options.step.steps == 0) options.step.steps = usual_steps;
  if (!path.empty() && !(options.data + outputs).empty())
    throw InvalidArgument("--trace has no numbers: --data and --outputs need --model");
  prepare_answer(set, !outputs.empty(), options);
  if (!outputs.empty()) require_writable(outputs);

  if (path.empty()) settle_strategy(options.runtime, *make_device(options.runtime));
  Measurement result;
  std::optional<OutOfMemoryReport> report;
  const WorkloadOptions given = options;
  if (path.empty()) {
    if (const auto note = lower_memory_to_free(options.runtime)) fmt::print(stderr, "note: {}\n", *note);
    record_program(options.runtime, options.model.is_given() ? "model" : "net",
                   options.model.is_given() ? options.model.path : options.net, options.step.batch);
    result = json ? measure_or_refuse(options) : measure(options);
    report = explain_failure(options, result);
    if (!outputs.empty() && result.outcome == RunOutcome::kOk) save_safetensors(outputs, result.outputs);
  } else {
    require_one_device(options);
    refuse_net_beside_input(set);
    check_tracing_options(set, {path}, {"batch"});
    const Trace trace = read_input(path, options, 0);
    use_recorded_setup(set, trace, options.runtime);
    use_recorded_limit(set, trace, options.runtime);
    result = measure(trace, options.runtime, options.step.steps);
    report = explain_failure(trace, options, result);
  }
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
  const std::string workload =
      path.empty() ? fmt::format("{}, batch {}", program_name(options), options.step.batch) : path;
  Sheet sheet = to_sheet(result, report, workload, options);
  if (!(options.data + outputs).empty()) {
    add_outputs(result.outputs, outputs, sheet);
  } else {
    sheet.next = {
        {command_after_run(result.outcome, report, path, path.empty() || report ? options : given)}};
  }
  // JSON is one line: compare and fit read it.
  fmt::print("{}", json ? to_json(sheet, -1) + "\n" : to_text(sheet, set.terminal()));
  return exit_code_of(result.outcome);
}

}  // namespace headroom
