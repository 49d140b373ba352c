// headroom predict: says whether a net's training fits on a device, by how much, and what takes the memory.
// Needs no GPU and computes nothing.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/cause.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/side_by_side.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/predict/predict_trace.h"
#include "tools/subcommands.h"
#include "tools/workload/device_table.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {
namespace {

struct Row {
  std::string strategy;
  Prediction prediction;
};

// The chosen strategy first, then all others whose need for a limit is met.
std::vector<RunSetup> setups_of_all(const RunSetup& setup) {
  std::vector<RunSetup> setups = {setup};
  const StrategySettings chosen = setup.options.strategy_settings();
  const bool has_limit = chosen.limit_bytes || setup.gpus.has_virtual();
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == setup.options.strategy || (strategy.needs_limit && !has_limit)) continue;
    RuntimeOptions& options = setups.emplace_back(setup).options;
    options.strategy = strategy.name;
    options.limit_bytes = chosen.limit_bytes;
    if (chosen.limit_scope == LimitScope::kProcess) options.limit_scope = LimitScope::kProcess;
    options.memory_fraction = chosen.memory_fraction;
    options.allow_growth = false;
  }
  return setups;
}

std::vector<Row> predict_all(const Traced& program, const RunSetup& setup) {
  constexpr size_t kMostThreads = 4;  // each plays the program, with memory for its live blocks
  const std::vector<RunSetup> setups = setups_of_all(setup);
  std::vector<std::optional<Prediction>> predictions(setups.size());
  Progress progress(static_cast<double>(setups.size()), "strategies");
  side_by_side(setups.size(), kMostThreads, [&](size_t i) {
    progress.start(setups[i].options.strategy);
    try {
      predictions[i] = predict(program, setups[i]);
    } catch (const InvalidArgument&) {  // cannot keep to such a limit
      if (i == 0) throw;
    }
    progress.advance(1);
  });
  std::vector<Row> rows;
  for (size_t i = 0; i < setups.size(); ++i) {
    if (predictions[i]) rows.push_back({setups[i].options.strategy, std::move(*predictions[i])});
  }
  return rows;
}

TableCell verdict(const Prediction& prediction) {
  return {prediction.fits ? "fits" : "does not fit", prediction.fits ? Colour::kGreen : Colour::kRed};
}

// The command line with the same options.
std::string with_options(const char* command, const WorkloadOptions& options) {
  return command_line(command, to_words(options, OptionSet::Words::kChanged));
}

// How a run would end. The cause of the one request that fails first is left out where no strategy has room
// for all: it would read as if exact sizes or less fragmentation helped.
std::string ending(const std::vector<Row>& rows) {
  std::string reason = rows.front().prediction.reason;
  const Row* nearest = nullptr;
  for (const Row& row : rows) {
    if (row.prediction.fits) return "a run would end with: " + reason;
    if (row.prediction.total_bytes > 0 &&
        (nearest == nullptr || *row.prediction.margin_bytes > *nearest->prediction.margin_bytes))
      nearest = &row;
  }
  if (nearest == nullptr || rows.size() == 1) return "a run would end with: " + reason;
  for (const CauseInfo& cause : causes()) {
    const size_t at = reason.rfind(fmt::format("; {}: ", cause.name));
    if (at != std::string::npos) reason.resize(at);
  }
  return fmt::format("no strategy fits: {} lacks {} and is the nearest; a run would end with: {}",
                     nearest->strategy, format_bytes(-*nearest->prediction.margin_bytes), reason);
}

// Where a budget is too small, what the least costs.
std::string next_command(WorkloadOptions options, int64_t least_memory_bytes) {
  if (least_memory_bytes == 0) return with_options("headroom fit", options);
  options.runtime.memory_bytes = least_memory_bytes;
  return with_options("headroom solve", options);
}

// `least_memory_bytes`: the least budget that is kept, where that of the options is not; else 0.
void print_report(const WorkloadOptions& options, const Traced& program, const RunSetup& setup,
                  const std::vector<Row>& rows, int64_t least_memory_bytes, const Terminal& terminal) {
  const Prediction& chosen = rows.front().prediction;
  const std::string margin = !chosen.margin_bytes ? "on no size of the device"
                             : chosen.fits        ? format_bytes(*chosen.margin_bytes) + " to spare"
                                                  : "lacks " + format_bytes(-*chosen.margin_bytes);
  const int64_t replicas = options.replicas.replicas;
  const size_t devices = program.devices.size();
  const std::string first =
      fmt::format("{}: {}, batch {}{}, under {} on {}{}: {}",
                  terminal.painted(verdict(chosen).text, *verdict(chosen).colour), program_name(options),
                  options.step.batch, replicas == 1 ? "" : fmt::format(" shared by {} replicas", replicas),
                  rows.front().strategy, devices == 1 ? "" : fmt::format("{} devices of ", devices),
                  options.runtime.device, margin);
  fmt::print("{}\ndevice of {}, others hold {}\n", terminal.wrapped(first),
             format_bytes(setup.device.total_bytes), format_bytes(others_bytes(setup)));
  if (!options.model.is_given() && options.net == kMnist && options.step.steps == 0) {
    fmt::print("{}\n", terminal.wrapped("it counts whole epochs with their test; a run of --steps N may take less"));
  }
  if (!chosen.reason.empty()) fmt::print("{}\n", terminal.wrapped(ending(rows)));
  if (chosen.total_bytes > 0) {
    if (!chosen.fits) fmt::print("with enough memory:\n");
    Table parts({{devices == 1 ? "" : "the fullest GPU"}, {.title = "MiB", .is_number = true}});
    const LiveSet live = live_at_peak(program, setup, chosen);
    for (const MemoryShare& part : parts_of(program, setup, chosen, live)) {
      parts.add({part.name, format_mib(part.bytes)});
    }
    parts.add({"total", format_mib(chosen.total_bytes)});
    fmt::print("\n{}\n{}", terminal.wrapped("at " + live.where), parts.text(terminal));
  }
  fmt::print("{}", device_table(program, chosen, terminal));
  Table table({{"strategy"},
               {"verdict"},
               {.title = "to spare", .is_number = true},
               {.title = "process", .is_number = true, .drop = 1},
               {.title = "reserved", .is_number = true, .drop = 2},
               {.title = "allocated", .is_number = true, .drop = 3}});
  for (const auto& [strategy, prediction] : rows) {
    const bool known = prediction.total_bytes > 0;
    const auto mib = [&](int64_t bytes) { return known ? format_mib(bytes) : std::string("-"); };
    table.add({strategy, verdict(prediction),
               prediction.margin_bytes ? format_mib(*prediction.margin_bytes) : "-",
               mib(prediction.total_bytes), mib(prediction.reserved_bytes), mib(prediction.allocated_bytes)});
  }
  fmt::print("\nin MiB\n{}", table.text(terminal));
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.strategy);
  if (const std::string note = lower_bound_note(names); !note.empty()) {
    fmt::print("{}\n", terminal.wrapped(note));
  }
  fmt::print("\nnext: {}\n", next_command(options, least_memory_bytes));
}

nlohmann::ordered_json to_json(const Traced& program, const RunSetup& setup, const Row& row) {
  const Prediction& prediction = row.prediction;
  nlohmann::ordered_json json;
  json["strategy"] = row.strategy;
  json["fits"] = prediction.fits;
  json["margin_bytes"] =
      prediction.margin_bytes ? nlohmann::ordered_json(*prediction.margin_bytes) : nlohmann::ordered_json();
  json["total_bytes"] = prediction.total_bytes;
  json["by_category"] = nlohmann::ordered_json::object();
  const LiveSet live = live_at_peak(program, setup, prediction);
  for (MemoryShare& part : parts_of(program, setup, prediction, live)) {
    std::replace(part.name.begin(), part.name.end(), ' ', '_');
    json["by_category"][part.name] = part.bytes;
  }
  json["peak_op"] = live.where;
  json["peak_reserved_bytes"] = prediction.reserved_bytes;
  json["reserved_is_lower_bound"] = is_lower_bound(row.strategy);
  json["peak_allocated_bytes"] = prediction.allocated_bytes;
  json["reason"] = prediction.reason;
  return json;
}

}  // namespace

int run_predict(int argc, char** argv) {
  WorkloadOptions options;
  std::vector<std::string> inputs;
  bool json = false;
  OptionSet set("headroom predict",
                "Predicts whether a training fits on a device, the margin, and what uses the memory.");
  set.add_arguments("INPUT", kInputHelp, &inputs, false);
  add_workload_options(set, options);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom predict train.py:make_step --device rtx-3090        a PyTorch program, traced without a "
      "GPU\n"
      "  headroom predict snapshot.pickle --device rtx-4090           a PyTorch memory snapshot\n"
      "  headroom predict --net unet --batch 256                      on a simulated 2 GB laptop\n"
      "  headroom predict --net unet --batch 256 --device sim:card-6gb --strategy caching --plan packed\n"
      "  headroom predict --device-memory 3GiB --others 1GiB          train_mnist's net on another machine\n"
      "  headroom predict --net mlp --device sim:four-2080ti --place dense2=/GPU:1 --device-policy silent\n"
      "  headroom predict --net residual --batch 4096 --json | jq .by_category\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  if (inputs.empty()) pack_for_memory(set, options.runtime);
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);
  if (!options.runtime.record.empty())
    fmt::print(stderr, "note: nothing runs, so nothing is recorded; `headroom run` records\n");

  if (!inputs.empty()) {
    const Trace trace = read_one_input(set, inputs, options);
    print_traced_device_note(set, trace, options.runtime);
    if (!set.is_given("device") && !set.is_given("device-memory") && !names_device(trace)) {
      fmt::print(stderr,
                 "note: the recording does not name its device, so this is for an H200; pass --device\n");
    }
    const std::optional<RecordedLimit> limit = use_recorded_limit(set, trace, options.runtime);
    const bool has_batch = set.is_given("batch") && is_program(inputs.front());
    return predict_trace(trace, inputs.front(), options, limit, has_batch ? options.step.batch : 0, json,
                         set.terminal());
  }
  if (const auto note = lower_memory_to_free(options.runtime)) fmt::print(stderr, "note: {}\n", *note);
  const RunSetup setup = setup_to_fit(options.runtime);
  const Traced program = trace_of(options);
  const std::vector<Row> rows = predict_all(program, setup);
  const int64_t least_memory_bytes = program.refusal ? program.refusal->least_bytes() : 0;
  if (json) {
    const Prediction& chosen = rows.front().prediction;
    nlohmann::ordered_json result = to_json(program, setup, rows.front());
    result["net"] = program_name(options);
    result["batch"] = options.step.batch;
    result["replicas"] = options.replicas.replicas;
    result["plan"] = to_string(options.runtime.plan);
    result["device"] = options.runtime.device;
    result["device_total_bytes"] = setup.device.total_bytes;
    result["device_others_bytes"] = others_bytes(setup);
    result["devices"] = nlohmann::ordered_json::parse(devices_json(program, chosen));
    if (program.refusal) result["least_memory_bytes"] = least_memory_bytes;
    result["copies"] = program.copies;
    result["copied_bytes"] = program.copied_bytes;
    result["strategies"] = nlohmann::ordered_json::array();
    for (const Row& row : rows) result["strategies"].push_back(to_json(program, setup, row));
    fmt::print("{}\n", result.dump(2));
  } else {
    print_report(options, program, setup, rows, least_memory_bytes, set.terminal());
  }
  return rows.front().prediction.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
