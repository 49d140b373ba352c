// headroom fit: finds the largest batch, or the least memory, with which a net trains on a device under a
// strategy. Predicts first, then runs the answer in a process of its own.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/fit/fit_trace.h"
#include "tools/subcommands.h"
#include "tools/trace/program.h"
#include "tools/workload/child.h"
#include "tools/workload/device_table.h"
#include "tools/workload/fitting.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"

namespace headroom {
namespace {

constexpr int64_t kFitSteps = 3;

struct FitOptions {
  WorkloadOptions workload;
  std::optional<int64_t> margin_bytes;
  int64_t max_batch = 1 << 20;
  bool least_memory = false, verify = true, json = false;
};

// Of a real GPU, whose other processes come and go; what others hold of a simulated one stays as it is.
constexpr int64_t kMarginOfGpu = 64 * kMiB;

int64_t margin_of(const FitOptions& options, const RuntimeOptions& runtime) {
  return options.margin_bytes.value_or(simulated_profile(runtime) ? 0 : kMarginOfGpu);
}

// The free memory of the host, if it is known.
std::optional<int64_t> host_available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    std::string key;
    if (std::istringstream(line) >> key >> kib && key == "MemAvailable:") return kib * kKiB;
  }
  return {};
}

// A simulated GPU's memory is the host's.
bool host_has_room(const WorkloadOptions& options) {
  const std::optional<int64_t> available = host_available_bytes();
  if (!available || !simulated_profile(options.runtime)) return true;
  int64_t bytes = 0;
  const Traced program = trace_of(options);
  for (const TracedDevice& device : program.devices) bytes += device.trace->peak_bytes;
  return bytes < *available / 10 * 9;
}

std::optional<Measurement> run_elsewhere(WorkloadOptions options, int64_t steps, Progress& progress) {
  if (!host_has_room(options)) return {};
  options.step.steps = steps;
  progress.start(fmt::format("batch {} runs", options.step.batch));
  Measurement measured = measure_in_child(to_words(options, OptionSet::Words::kAll));
  progress.advance(1);
  return measured;
}

std::string certainty(const FitOptions& options, const FitResult& result) {
  if (result.verified) {
    const int64_t steps = result.trials.back().measurement.steps;
    return fmt::format("ran {} step{} there", steps, steps == 1 ? "" : "s");
  }
  return options.verify ? "predicted; this host has too little memory to run it" : "predicted, not run";
}

void print_report(const FitOptions& options, const FitResult& result, const std::string& device, bool fits,
                  const Terminal& terminal) {
  const WorkloadOptions& workload = options.workload;
  const int64_t replicas = workload.replicas.replicas;
  const std::string where =
      fmt::format("{}under {} on {}", replicas == 1 ? "" : fmt::format("in {} replicas ", replicas),
                  workload.runtime.strategy, device);
  if (!fits) {
    fmt::print("{}\n{}\n",
               terminal.wrapped(fmt::format(
                   "{}: {}, {} {}", terminal.painted("nothing fits", Colour::kRed), program_name(workload),
                   options.least_memory ? fmt::format("batch {}", workload.step.batch) : "no batch", where)),
               terminal.wrapped(result.stopped_by));
  } else if (options.least_memory) {
    fmt::print("{}\n",
               terminal.wrapped(fmt::format(
                   "{}: {}, batch {}{}, {}; {}",
                   terminal.painted("least memory " + format_bytes(result.device_bytes), Colour::kGreen),
                   program_name(workload), result.batch,
                   workload.runtime.memory_bytes
                       ? fmt::format(", planned for {}", format_bytes(*workload.runtime.memory_bytes))
                       : "",
                   where, certainty(options, result))));
  } else {
    fmt::print("{}\n", terminal.wrapped(fmt::format(
                           "{}: {} {}; {}",
                           terminal.painted(fmt::format("largest batch {}", result.batch), Colour::kGreen),
                           program_name(workload), where, certainty(options, result))));
  }
  if (fits) {
    fmt::print("{}\n",
               terminal.wrapped(why_not_text(*options.margin_bytes, options.least_memory ? "less" : "more",
                                             result.stopped_by)));
    if (!options.least_memory && workload.runtime.memory_bytes &&
        workload.runtime.split_batch == SplitBatch::kNever) {
      fmt::print("{}\n", terminal.wrapped("a larger batch may run in parts: --split-batch needed"));
    }
  }
  Table table({{""},
               {.title = "batch", .is_number = true},
               {.title = "device", .is_number = true},
               {"outcome"},
               {.title = "process", .is_number = true},
               {.title = "reserved", .is_number = true, .drop = 1},
               {.title = "allocated", .is_number = true, .drop = 2}});
  const Prediction& prediction = result.prediction;
  if (fits) {
    table.add({"predicted",
               fmt::format("{}", result.batch),
               format_mib(result.device_bytes),
               {prediction.fits ? "fits" : "does not fit", prediction.fits ? Colour::kGreen : Colour::kRed},
               format_mib(prediction.total_bytes),
               format_mib(prediction.reserved_bytes),
               format_mib(prediction.allocated_bytes)});
  }
  for (const FitTrial& trial : result.trials) {
    const Measurement& m = trial.measurement;
    table.add({"run",
               fmt::format("{}", trial.batch),
               format_mib(trial.device_bytes),
               {to_string(m.outcome), m.outcome == RunOutcome::kOk ? Colour::kGreen : Colour::kRed},
               format_mib(m.peak_process_bytes),
               format_mib(m.peak_reserved_bytes),
               format_mib(m.peak_allocated_bytes)});
  }
  if (!table.empty()) fmt::print("\nin MiB\n{}", table.text(terminal));
  if (const std::string note = lower_bound_note(workload.runtime.strategy); !note.empty()) {
    fmt::print("{}\n", terminal.wrapped("predicted with " + note));
  }
  if (fits) fmt::print("{}", device_table(result.traced, prediction, terminal));
  WorkloadOptions next = workload;
  next.step.batch = std::max<int64_t>(result.batch, 1);
  next.runtime.record.clear();  // compare would write all runs to one file, and refuses
  if (options.least_memory && fits) next.runtime = with_device_memory(next.runtime, result.device_bytes);
  if (!next.runtime.memory_bytes) next.runtime.split_batch = WorkloadOptions().runtime.split_batch;
  // Refused for its budget, whatever the device.
  if (!fits && options.least_memory && workload.runtime.memory_bytes && result.trials.empty()) {
    fmt::print("\nnext: {}\n", command_to_solve(next));
    return;
  }
  fmt::print("\nnext: {}\n", command_line(fits ? "headroom compare" : "headroom predict",
                                          to_words(next, OptionSet::Words::kChanged)));
}

std::string to_json(const FitOptions& options, const FitResult& result, bool fits) {
  nlohmann::ordered_json json;
  json["fits"] = fits;
  json["net"] = program_name(options.workload);
  json["strategy"] = options.workload.runtime.strategy;
  json["plan"] = to_string(options.workload.runtime.plan);
  json["device"] = options.workload.runtime.device;
  json["batch"] = result.batch;
  json["device_bytes"] = result.device_bytes;
  json["margin_bytes"] = *options.margin_bytes;
  json["predicted_total_bytes"] = result.prediction.total_bytes;
  json["predicted_reserved_bytes"] = result.prediction.reserved_bytes;
  json["predicted_allocated_bytes"] = result.prediction.allocated_bytes;
  json["reserved_is_lower_bound"] = is_lower_bound(options.workload.runtime.strategy);
  json["predicted_devices"] = nlohmann::ordered_json::parse(devices_json(result.traced, result.prediction));
  json["verified"] = result.verified;
  json["stopped_by"] = result.stopped_by;
  json["trials"] = nlohmann::ordered_json::array();
  for (const FitTrial& trial : result.trials) {
    nlohmann::ordered_json row = nlohmann::ordered_json::parse(to_json(trial.measurement));
    row["batch"] = trial.batch;
    row["device_bytes"] = trial.device_bytes;
    json["trials"].push_back(row);
  }
  return json.dump(2);
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
  add_workload_options(set, options.workload);
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
      "  headroom fit train.py:make_step --device rtx-3090         largest batch of a PyTorch program\n"
      "  headroom fit snapshot.pickle --least-memory               the smallest GPU for a recorded run\n"
      "  headroom fit --net unet                                   largest batch on a simulated 2 GB laptop\n"
      "  headroom fit --net unet --device cuda --strategy caching --margin 256MiB --steps 50\n"
      "  headroom fit --net unet --device sim:four-2080ti --replicas 4 --shard-optimizer\n"
      "  headroom fit --net unet --batch 64 --least-memory         the smallest GPU for this batch\n"
      "  headroom fit --net residual --device sim:h200 --verify=false --json | jq .batch\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (inputs.empty()) pack_for_memory(set, options.workload.runtime);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (!inputs.empty()) {
    TraceFitOptions fit{.max_batch = options.max_batch,
                        .least_memory = options.least_memory,
                        .json = options.json,
                        .terminal = set.terminal()};
    WorkloadOptions& workload = options.workload;
    if (!set.is_given("steps")) workload.step.steps = WorkloadOptions{}.step.steps;  // of the tracer
    if (inputs.size() == 1 && is_program(inputs.front()) && !fit.least_memory) {
      // Without a trace of its own, as the program may need a batch.
      use_recorded_setup(set, {}, workload.runtime);
      fit.margin_bytes = margin_of(options, workload.runtime);
      return fit_program_batch(inputs.front(), workload, fit);
    }
    const Trace trace = read_one_input(set, inputs, workload);
    print_traced_device_note(set, trace, workload.runtime);
    fit.margin_bytes = margin_of(options, workload.runtime);
    return fit_trace(trace, inputs.front(), workload, fit);
  }
  if (const auto note = lower_memory_to_free(options.workload.runtime))
    fmt::print(stderr, "note: {}\n", *note);
  // The answer has to do for whole epochs; only its run is short.
  const int64_t steps = std::exchange(options.workload.step.steps, 0);
  options.margin_bytes = margin_of(options, options.workload.runtime);
  Progress progress(0, "batches run");
  progress.start("predicting");
  const FitSettings settings{*options.margin_bytes, options.max_batch, [&](int64_t batch) {
                               progress.start(fmt::format("predicting batch {}", batch));
                             }};
  const RunElsewhere run = [&](const WorkloadOptions& workload) {
    return options.verify ? run_elsewhere(workload, steps > 0 ? steps : kFitSteps, progress) : std::nullopt;
  };
  const FitResult result = options.least_memory ? fit_memory(options.workload, settings, run)
                                                : fit_batch(options.workload, settings, run);
  progress.finish();
  const bool fits = result.batch > 0 && result.device_bytes > 0;
  if (options.json) {
    fmt::print("{}\n", to_json(options, result, fits));
  } else {
    const RuntimeOptions& runtime = options.workload.runtime;
    print_report(options, result, options.least_memory ? with_named_profile(runtime).device : runtime.device,
                 fits, set.terminal());
  }
  return fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
