// headroom run: runs a few real steps of a net's training, or plays a trace, and says what that took. compare
// and fit run it in processes of their own.

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/gpu_program.h"
#include "tools/subcommands.h"
#include "tools/workload/explain_failure.h"
#include "tools/workload/input.h"
#include "tools/workload/measure.h"
#include "trace/trace.h"

namespace headroom {
namespace {

// For a net that is placed on several devices.
void print_devices(const Measurement& m, const Terminal& terminal) {
  Table table({{"device"}, {"device", true}, {"process", true}, {"reserved", true}, {"allocated", true}});
  for (const DeviceResult& d : m.devices) {
    table.add({d.device, format_mib(d.peak_device_bytes), format_mib(d.peak_process_bytes),
               format_mib(d.peak_reserved_bytes), format_mib(d.peak_allocated_bytes)});
  }
  fmt::print("\n{}", table.text(terminal));
}

Colour colour_of(RunOutcome outcome) {
  return outcome == RunOutcome::kOk ? Colour::kGreen : Colour::kRed;
}

void print_run(const Measurement& m, const std::optional<OutOfMemoryReport>& report,
               const std::string& workload, const WorkloadOptions& options, const Terminal& terminal) {
  const RuntimeOptions& runtime = options.runtime;
  fmt::print("{}\n", terminal.wrapped(
                         fmt::format("{}: {} under {} on {}, {} step{}",
                                     terminal.painted(to_string(m.outcome), colour_of(m.outcome)), workload,
                                     runtime.strategy, runtime.device, m.steps, m.steps == 1 ? "" : "s")));
  if (report) {
    fmt::print("{}", to_text(*report));
  } else if (!m.error.empty()) {
    fmt::print("{}\n", terminal.wrapped(m.error));
  }
  Table peaks({{.title = "device", .is_number = true},
               {.title = "process", .is_number = true},
               {.title = "reserved", .is_number = true},
               {.title = "allocated", .is_number = true, .drop = 3},
               {.title = "overhead", .is_number = true, .drop = 2},
               {.title = "fragmentation", .is_number = true, .drop = 4},
               {.title = "ms/step", .is_number = true, .drop = 1}});
  peaks.add({format_mib(m.peak_device_bytes), format_mib(m.peak_process_bytes),
             format_mib(m.peak_reserved_bytes), format_mib(m.peak_allocated_bytes),
             format_mib(m.overhead_bytes), fmt::format("{:.3f}", m.fragmentation),
             fmt::format("{:.3f}", 1e3 * m.seconds_per_step)});
  fmt::print("\npeaks in MiB\n{}", peaks.text(terminal));
  if (m.devices.size() > m.replicas.size()) print_devices(m, terminal);
  if (m.replicas.size() < 2) return;
  Table replicas({{"replica"},
                  {"device", true},
                  {"reserved", true},
                  {"allocated", true},
                  {.title = "optimizer", .is_number = true, .drop = 2},
                  {.title = "weights", .drop = 1}});
  for (const ReplicaResult& r : m.replicas) {
    replicas.add({r.device, format_mib(r.peak_device_bytes), format_mib(r.peak_reserved_bytes),
                  format_mib(r.peak_allocated_bytes), format_mib(r.optimizer_bytes), r.weights_checksum});
  }
  fmt::print("\n{}", replicas.text(terminal));
}

std::string command_after_run(RunOutcome outcome, const std::optional<OutOfMemoryReport>& report,
                              const std::string& path, const WorkloadOptions& options) {
  const std::string trace = path.empty() ? "" : " --trace " + shell_word(path);
  const TriedChange* change = report ? report->smallest() : nullptr;
  // Without a report it was refused for its budget.
  if (outcome == RunOutcome::kOutOfMemory && !report) return command_to_solve(options);
  if (change == nullptr) {
    WorkloadOptions compared = options;
    compared.runtime.strategy = RuntimeOptions{}.strategy;  // all of them
    compared.runtime.record.clear();
    if (compared.step.steps == (path.empty() ? kStepsOfRun : 1))
      compared.step.steps = 0;  // compare's default
    return command_line("headroom compare" + trace, to_words(compared, OptionSet::Words::kChanged));
  }
  if (change->kind == ChangeKind::kDevice) return fmt::format("headroom devices  # for {}", change->what);
  return command_line("headroom run" + trace,
                      to_words(with_change(options, *change), OptionSet::Words::kChanged));
}

}  // namespace

int run_run(int argc, char** argv) {
  WorkloadOptions options;
  options.step.steps = kStepsOfRun;
  std::string path;
  bool json = false;
  OptionSet set("headroom run",
                "Trains a net for a few steps, or replays a trace, and measures memory and time.");
  add_workload_options(set, options);
  set.add_text("trace", "Replay the trace in this file instead of training a net; --steps repeats it", &path);
  set.add_switch("json", "Print one line of JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom run --net unet --batch 16                      on a simulated 2 GB laptop\n"
      "  headroom run --net attention --device cuda --steps 100  on a GPU\n"
      "  headroom run --trace run.csv.gz --device sim:h200 --strategy mapped\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  pack_for_memory(set, options.runtime);
  if (cuda_ordinal(options.runtime.device)) continue_in_gpu_program(argv);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  // A recording has all steps of its program.
  const int64_t usual_steps = path.empty() ? kStepsOfRun : 1;
  if (!set.is_given("steps") || options.step.steps == 0) options.step.steps = usual_steps;

  Measurement result;
  std::optional<OutOfMemoryReport> report;
  if (path.empty()) {
    if (const auto note = lower_memory_to_free(options.runtime)) fmt::print(stderr, "note: {}\n", *note);
    record_program(options.runtime, options.model.is_given() ? "model" : "net",
                   options.model.is_given() ? options.model.path : options.net, options.step.batch);
    result = json ? measure_or_refuse(options) : measure(options);
    report = explain_failure(options, result);
  } else {
    require_one_device(options);
    const std::vector<Trace> traces = read_recordings(path);
    if (traces.size() != 1) {
      throw InvalidArgument(fmt::format("{}: has traces of {} devices; run takes one", path, traces.size()));
    }
    result = measure(traces.front(), options.runtime, options.step.steps);
    report = explain_failure(traces.front(), options, result);
  }
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}\n", note);
  if (json) {
    auto object = nlohmann::ordered_json::parse(to_json(result));
    object["out_of_memory"] =
        report ? nlohmann::ordered_json::parse(to_json(*report)) : nlohmann::ordered_json();
    fmt::print("{}\n", object.dump());
  } else {
    print_run(result, report,
              path.empty() ? fmt::format("{}, batch {}", program_name(options), options.step.batch)
                           : printable(path),
              options, set.terminal());
    fmt::print("\nnext: {}\n", command_after_run(result.outcome, report, path, options));
  }
  return exit_code_of(result.outcome);
}

}  // namespace headroom
