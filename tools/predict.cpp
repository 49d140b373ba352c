// headroom predict: whether a net's training fits on a device, by how much, and what takes the memory. No GPU
// is needed and nothing is computed.

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "allocators/strategy_text.h"
#include "runtime/command_line.h"
#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "tools/subcommands.h"
#include "tools/workload/placed_prediction.h"
#include "tools/workload/prediction.h"

namespace headroom {
namespace {

struct Row {
  std::string strategy;
  Prediction prediction;
};

// The chosen strategy first, then all others that need no limit, or have one.
std::vector<Row> predict_all(const Predictor& predictor, const Place& place, const std::string& chosen) {
  std::vector<Row> rows = {{chosen, predictor.predict(place)}};
  for (const Strategy& strategy : strategies()) {
    Place other = place;
    other.strategy = StrategySettings{.name = std::string(strategy.name),
                                      .limit_bytes = place.strategy.limit_bytes,
                                      .limit_scope = place.strategy.limit_scope,
                                      .memory_fraction = place.strategy.memory_fraction};
    if (strategy.name == chosen || (strategy.needs_limit && !other.strategy.limit_bytes)) continue;
    try {
      rows.push_back({std::string(strategy.name), predictor.predict(other)});
    } catch (const InvalidArgument&) {  // cannot keep to such a limit
    }
  }
  return rows;
}

std::string verdict(const Prediction& prediction) {
  return prediction.fits ? "fits" : "does not fit";
}

// The command with the same options.
std::string with_options(const char* command, const WorkloadOptions& options) {
  return command_line(command, to_words(options, OptionSet::Words::kChanged));
}

void print_report(const WorkloadOptions& options, const Place& place, const std::vector<Row>& rows) {
  const Prediction& chosen = rows.front().prediction;
  const DeviceProfile& profile = place.profile;
  const std::string margin = chosen.fits ? format_bytes(chosen.margin_bytes) + " to spare"
                                         : "lacks " + format_bytes(-chosen.margin_bytes);
  const int64_t replicas = options.replicas.replicas;
  fmt::print("{}: {}, batch {}{}, under {} on {}: {}\n", verdict(chosen), options.net, options.step.batch,
             replicas == 1 ? "" : fmt::format(", each of {} replicas", replicas), rows.front().strategy,
             options.runtime.device, margin);
  fmt::print("device of {}, others hold {}\n", format_bytes(profile.total_bytes),
             format_bytes(profile.others_bytes));
  if (!chosen.reason.empty()) fmt::print("{}\n", chosen.reason);
  if (chosen.total_bytes > 0) {
    if (!chosen.fits) fmt::print("where there is enough, it takes:\n");
    fmt::print("\n{:<16} {:>10}   at {}\n", "", "MiB", chosen.peak_op);
    for (size_t i = 0; i < kCategoryNames.size(); ++i) {
      std::string name(kCategoryNames[i]);
      std::replace(name.begin(), name.end(), '_', ' ');
      fmt::print("{:<16} {:>10}\n", name, format_mib(chosen.by_category[i]));
    }
    fmt::print("{:<16} {:>10}\n", "total", format_mib(chosen.total_bytes));
  }
  size_t width = std::string_view("strategy").size();
  for (const Row& row : rows) width = std::max(width, row.strategy.size());
  fmt::print("\nin MiB\n{:<{}} {:<12} {:>10} {:>10} {:>10} {:>10}\n", "strategy", width, "verdict",
             "to spare", "process", "reserved", "allocated");
  for (const auto& [strategy, prediction] : rows) {
    fmt::print("{:<{}} {:<12} {:>10}", strategy, width, verdict(prediction),
               format_mib(prediction.margin_bytes));
    const bool known = prediction.total_bytes > 0;
    for (int64_t bytes : {prediction.total_bytes, prediction.reserved_bytes, prediction.allocated_bytes}) {
      fmt::print(" {:>10}", known ? format_mib(bytes) : "-");
    }
    fmt::print("\n");
  }
  fmt::print("\nnext: {}\n", with_options("headroom fit", options));
}

nlohmann::ordered_json to_json(const Row& row) {
  const Prediction& prediction = row.prediction;
  nlohmann::ordered_json json;
  json["strategy"] = row.strategy;
  json["fits"] = prediction.fits;
  json["margin_bytes"] = prediction.margin_bytes;
  json["total_bytes"] = prediction.total_bytes;
  json["by_category"] = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kCategoryNames.size(); ++i) {
    json["by_category"][std::string(kCategoryNames[i])] = prediction.by_category[i];
  }
  json["peak_op"] = prediction.peak_op;
  json["peak_reserved_bytes"] = prediction.reserved_bytes;
  json["peak_allocated_bytes"] = prediction.allocated_bytes;
  json["reason"] = prediction.reason;
  return json;
}

int report_placed(const WorkloadOptions& options, bool json) {
  const PlacedPrediction placed = predict_placed(make_program(options), options);
  if (json) {
    nlohmann::ordered_json result;
    result["net"] = options.net;
    result["batch"] = options.step.batch;
    result["plan"] = options.runtime.plan;
    result["device"] = options.runtime.device;
    result["strategy"] = options.runtime.strategy;
    result["fits"] = placed.fits;
    result["reason"] = placed.reason;
    result["copies"] = placed.copies;
    result["copied_bytes"] = placed.copied_bytes;
    result["devices"] = nlohmann::ordered_json::array();
    for (const DevicePrediction& device : placed.devices) {
      result["devices"].push_back({{"name", device.name},
                                   {"variable_bytes", device.variable_bytes},
                                   {"step_bytes", device.step_bytes},
                                   {"peak_allocated_bytes", device.peak.allocated_bytes},
                                   {"peak_reserved_bytes", device.peak.reserved_bytes},
                                   {"process_bytes", device.peak.process_bytes}});
    }
    fmt::print("{}\n", result.dump(2));
    return placed.fits ? kExitDone : kExitOutOfMemory;
  }
  fmt::print("{}: {}, batch {}, under {} on {} devices of {}\n", placed.fits ? "fits" : "does not fit",
             options.net, options.step.batch, options.runtime.strategy, placed.devices.size(),
             options.runtime.device);
  if (!placed.reason.empty()) fmt::print("{}\n", placed.reason);
  fmt::print("\nin MiB\n{:<16} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "device", "variables", "a step",
             "allocated", "reserved", "process");
  for (const DevicePrediction& device : placed.devices) {
    fmt::print("{:<16} {:>10} {:>10}", device.name, format_mib(device.variable_bytes),
               format_mib(device.step_bytes));
    const PeakPrediction& peak = device.peak;
    for (int64_t bytes : {peak.allocated_bytes, peak.reserved_bytes, peak.process_bytes}) {
      fmt::print(" {:>10}", placed.fits ? format_mib(bytes) : "-");
    }
    fmt::print("\n");
  }
  fmt::print("{} values are copied between devices in a step, {}\n", placed.copies,
             format_bytes(placed.copied_bytes));
  fmt::print("\nnext: {}\n", with_options("headroom run", options));
  return placed.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace

int run_predict(int argc, char** argv) {
  WorkloadOptions options;
  bool json = false;
  OptionSet set("headroom predict",
                "Says whether training a net fits on a device, by how much, and what takes the memory.");
  add_workload_options(set, options);
  set.add_switch("json", "Print JSON, sizes in bytes", &json);
  set.set_examples(
      "  headroom predict --net unet --batch 256                      on a simulated 2 GB laptop\n"
      "  headroom predict --net unet --batch 256 --device sim:card-6gb --strategy caching --plan packed\n"
      "  headroom predict --device-memory 3GiB --others 1GiB          train_mnist's net on another machine\n"
      "  headroom predict --net mlp --device sim:four-2080ti --place dense2=/GPU:1 --device-policy silent\n"
      "  headroom predict --net residual --batch 4096 --json | jq .by_category\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;
  for (const std::string& note : set.notes()) fmt::print(stderr, "note: {}\n", note);

  if (!options.runtime.place.empty()) return report_placed(options, json);
  const Place place = place_of(options.runtime);
  const Predictor predictor(make_program(options), options.runtime.plan_mode());
  const std::vector<Row> rows = predict_all(predictor, place, options.runtime.strategy);
  if (json) {
    nlohmann::ordered_json result = to_json(rows.front());
    result["net"] = options.net;
    result["batch"] = options.step.batch;
    result["replicas"] = options.replicas.replicas;
    result["plan"] = options.runtime.plan;
    result["device"] = options.runtime.device;
    result["device_total_bytes"] = place.profile.total_bytes;
    result["device_others_bytes"] = place.profile.others_bytes;
    result["strategies"] = nlohmann::ordered_json::array();
    for (const Row& row : rows) result["strategies"].push_back(to_json(row));
    fmt::print("{}\n", result.dump(2));
  } else {
    print_report(options, place, rows);
  }
  return rows.front().prediction.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
