#include "tools/predict/predict_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/side_by_side.h"
#include "base/table.h"
#include "base/text.h"
#include "runtime/app/setup.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/solve_torch.h"
#include "tools/workload/torch_changes.h"

namespace headroom {
namespace {

constexpr size_t kShares = 10;  // modules and lines in the text; JSON has more
constexpr size_t kSharesInJson = 1000;
constexpr size_t kMostThreads = 4;  // each replays the trace, with memory for its live blocks

struct TraceRow {
  std::string strategy;
  Prediction prediction;
};

// With another strategy under the same limit; nothing where it cannot take the trace.
std::optional<Prediction> outcome_with(const Traced& program, RunSetup setup, const std::string& strategy) {
  try {
    const StrategySettings chosen = strategy_of(setup);
    setup.options.strategy = strategy;
    setup.options.allow_growth = false;
    setup.options.limit_bytes = chosen.limit_bytes;
    setup.options.limit_scope = chosen.limit_scope;
    setup.options.memory_fraction = chosen.memory_fraction;
    return outcome(program, setup);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

// The chosen strategy first, then the others that can take the trace.
std::vector<TraceRow> predict_all_strategies(const Traced& program, const RunSetup& setup,
                                             const std::string& chosen) {
  const Trace& trace = program.front();
  std::vector<std::string> names;
  if (is_of_torch(trace)) names = {"pytorch", "pytorch,expandable_segments:True"};
  for (const Strategy& strategy : strategies()) {
    const bool is_known_as_torch = strategy.name == "caching" && is_of_torch(trace);
    if (!strategy.needs_limit && !is_known_as_torch) names.emplace_back(strategy.name);
  }
  std::erase(names, chosen);
  names.insert(names.begin(), chosen);
  std::vector<std::optional<Prediction>> predictions(names.size());
  Progress progress(static_cast<double>(names.size()), "strategies");
  // The search for the margin and what plans the whole trace take longest, so they begin first.
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin() + 1, order.end(), [&](size_t at) {
    return find_strategy(parse_strategy(names[at]).name).prepare_replay != nullptr;
  });
  side_by_side(order.size(), kMostThreads, [&](size_t i) {
    const size_t at = order[i];
    progress.start(names[at]);
    predictions[at] = at == 0 ? predict(program, setup) : outcome_with(program, setup, names[at]);
    progress.advance(1);
  });
  std::vector<TraceRow> rows;
  for (size_t at = 0; at < names.size(); ++at) {
    if (predictions[at]) rows.push_back({names[at], std::move(*predictions[at])});
  }
  return rows;
}

std::string margin_text(const Prediction& prediction) {
  if (!prediction.margin_bytes) return "on no device size";
  return prediction.fits ? format_bytes(*prediction.margin_bytes) + " to spare"
                         : "lacks " + format_bytes(-*prediction.margin_bytes);
}

// The first of them, the others together, and what has no name: they add up to the same.
std::vector<MemoryShare> shortened(const std::vector<MemoryShare>& shares, size_t most) {
  const bool has_rest = !shares.empty() && (shares.back().name == kNoModule || shares.back().name == kNoLine);
  const size_t named = shares.size() - (has_rest ? 1 : 0);
  if (named <= most) return shares;
  std::vector<MemoryShare> result(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(most));
  MemoryShare& more = result.emplace_back(MemoryShare{fmt::format("{} more", named - most)});
  for (size_t i = most; i < named; ++i) more.bytes += shares[i].bytes;
  if (has_rest) result.push_back(shares.back());
  return result;
}

void print_shares(const char* what, const std::vector<MemoryShare>& shares, const Terminal& terminal) {
  if (shares.empty()) return;
  Table table({{.title = what, .wraps = true}, {.title = "MiB", .is_number = true}});
  for (const MemoryShare& share : shortened(shares, kShares)) {
    table.add({printable(share.name), format_mib(share.bytes)});
  }
  fmt::print("\n{}", table.text(terminal));
}

TableCell verdict_of(const Prediction& prediction) {
  return {prediction.fits ? "fits" : "does not fit", prediction.fits ? Colour::kGreen : Colour::kRed};
}

// Why the verdict is not that of the whole device.
std::string limit_text(const RecordedLimit& limit, const RunSetup& setup) {
  std::string text;
  if (limit.free_bytes > 0) {
    text = fmt::format(
        "the recording has a limit: {} were refused while {} of the device were free. It is at least {} and "
        "below {}; torch.cuda.set_per_process_memory_fraction sets such a limit. --device {} predicts "
        "without it. ",
        format_bytes(limit.requested_bytes), format_bytes(limit.free_bytes),
        format_bytes(limit.at_least_bytes), format_bytes(limit.below_bytes), setup.device.name);
  }
  if (limit.replay_spare_bytes > 0) {
    text += fmt::format(
        "The last request failed; a replay needs {} less than the recorded process and gets so much less. ",
        format_bytes(limit.replay_spare_bytes));
  }
  text.pop_back();
  return text;
}

void print_text(const Traced& program, const std::string& input, const RunSetup& setup,
                const std::optional<RecordedLimit>& limit, const std::vector<TraceRow>& rows,
                const LiveSet& live, const std::vector<std::string>& next, const Terminal& terminal) {
  const Trace& trace = program.front();
  const Prediction& chosen = rows.front().prediction;
  const DeviceProfile& device = setup.device;
  const TableCell verdict = verdict_of(chosen);
  fmt::print("{}\n",
             terminal.wrapped(fmt::format("{}: {} under {} on {}: {}",
                                          terminal.painted(verdict.text, *verdict.colour), printable(input),
                                          rows.front().strategy, setup.options.device, margin_text(chosen))));
  fmt::print(
      "{}\n",
      terminal.wrapped(fmt::format(
          "device of {} ({}), context of {} ({}), others hold {}{}", format_bytes(device.total_bytes),
          setup.options.device_memory_bytes ? "as given" : to_string(device.total_origin),
          format_bytes(device.context_bytes),
          setup.options.context_bytes ? "as given" : to_string(device.context_origin),
          format_bytes(others_bytes(setup)),
          setup.options.limit_bytes ? fmt::format(", limit of {}", format_bytes(*setup.options.limit_bytes))
                                    : "")));
  if (limit) fmt::print("{}\n", terminal.wrapped(limit_text(*limit, setup)));
  if (!chosen.reason.empty()) fmt::print("{}\n", terminal.wrapped(chosen.reason));
  if (chosen.failed_event && *chosen.failed_event > 0) {
    const std::string what = place_text(trace, *chosen.failed_event - 1);
    fmt::print("{}\n", terminal.wrapped(fmt::format("at event {} of {}{}", *chosen.failed_event,
                                                    trace.events.size(), what.empty() ? "" : ": " + what)));
  }
  if (chosen.total_bytes > 0) {
    if (!chosen.fits) fmt::print("with enough memory:\n");
    Table parts({{""}, {.title = "MiB", .is_number = true}});
    for (const MemoryShare& part : parts_of(program, setup, chosen, live)) parts.add({part.name, format_mib(part.bytes)});
    parts.add({"total", format_mib(chosen.total_bytes)});
    fmt::print("\n{}{}", live.where.empty() ? "" : terminal.wrapped("at " + live.where) + "\n",
               parts.text(terminal));
  }
  print_shares("live at that time, by module", live.by_module, terminal);
  print_shares("live at that time, by line", live.by_line, terminal);
  Table table({{"strategy"},
               {"verdict"},
               {.title = "process", .is_number = true},
               {.title = "reserved", .is_number = true, .drop = 1},
               {.title = "allocated", .is_number = true, .drop = 2}});
  for (const TraceRow& row : rows) {
    const Prediction& prediction = row.prediction;
    // What one took when it failed is not what it takes.
    const auto mib = [&](int64_t bytes) {
      return prediction.total_bytes > 0 ? format_mib(bytes) : std::string("-");
    };
    table.add({row.strategy, verdict_of(prediction), mib(prediction.total_bytes),
               mib(prediction.reserved_bytes), mib(prediction.allocated_bytes)});
  }
  fmt::print("\nin MiB\n{}", table.text(terminal));
  std::vector<std::string> names;
  for (const TraceRow& row : rows) names.push_back(row.strategy);
  if (const std::string note = lower_bound_note(names); !note.empty()) {
    fmt::print("{}\n", terminal.wrapped(note));
  }
  fmt::print("\nnext: {}\n", fmt::join(next, "\n  or: "));
}

nlohmann::ordered_json json_of(const std::vector<MemoryShare>& shares) {
  auto json = nlohmann::ordered_json::array();
  for (const MemoryShare& share : shortened(shares, kSharesInJson)) {
    json.push_back({{"name", share.name}, {"bytes", share.bytes}});
  }
  return json;
}

nlohmann::ordered_json json_of(const TraceRow& row) {
  const Prediction& prediction = row.prediction;
  nlohmann::ordered_json json;
  json["strategy"] = row.strategy;
  json["fits"] = prediction.fits;
  json["margin_bytes"] =
      prediction.margin_bytes ? nlohmann::ordered_json(*prediction.margin_bytes) : nlohmann::ordered_json();
  const auto or_null = [&](int64_t bytes) {
    return prediction.total_bytes > 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json();
  };
  json["total_bytes"] = or_null(prediction.total_bytes);
  json["peak_reserved_bytes"] = or_null(prediction.reserved_bytes);
  json["reserved_is_lower_bound"] = is_lower_bound(row.strategy);
  json["peak_allocated_bytes"] = or_null(prediction.allocated_bytes);
  json["peak_requested_bytes"] = or_null(prediction.requested_bytes);
  json["reason"] = prediction.reason;
  json["failed_event"] =
      prediction.failed_event ? nlohmann::ordered_json(*prediction.failed_event) : nlohmann::ordered_json();
  return json;
}

std::string to_json(const Traced& program, const std::string& input, const RunSetup& setup,
                    const std::optional<RecordedLimit>& limit, const std::vector<TraceRow>& rows,
                    const LiveSet& live, const std::vector<std::string>& next) {
  nlohmann::ordered_json json = json_of(rows.front());
  json["input"] = input;
  json["device"] = setup.options.device;
  json["device_total_bytes"] = setup.device.total_bytes;
  json["device_others_bytes"] = others_bytes(setup);
  json["recorded_limit"] = nullptr;
  if (limit) {
    json["recorded_limit"] = {{"at_least_bytes", limit->at_least_bytes},
                              {"below_bytes", limit->below_bytes},
                              {"refused_bytes", limit->requested_bytes},
                              {"free_bytes", limit->free_bytes},
                              {"replay_spare_bytes", limit->replay_spare_bytes}};
  }
  json["by_category"] = nlohmann::ordered_json::object();
  for (const MemoryShare& part : parts_of(program, setup, rows.front().prediction, live)) {
    std::string name = part.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    json["by_category"][name] = part.bytes;
  }
  json["peak_op"] = live.where;
  json["by_module"] = json_of(live.by_module);
  json["by_line"] = json_of(live.by_line);
  json["strategies"] = nlohmann::ordered_json::array();
  for (const TraceRow& row : rows) json["strategies"].push_back(json_of(row));
  json["next"] = next.front();
  json["alternatives"] = std::vector<std::string>(next.begin() + 1, next.end());
  // Names out of traces may hold any bytes.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The next command.
std::string next_command(const std::string& input, const WorkloadOptions& options, bool fits) {
  const bool is_file = std::filesystem::exists(input);
  const char* const command = is_file && fits ? "headroom compare" : "headroom fit";
  WorkloadOptions carried = options;
  if (is_file && fits) carried.runtime.strategy = RuntimeOptions{}.strategy;  // compare takes all of them
  if (is_file && !fits) carried.runtime.limit_bytes.reset();  // with it a larger device does not help
  // Neither takes a batch: fit finds the one of a program, and a file has its own.
  const std::string line = command_on_input(command, input, carried, 0);
  return is_file && !fits ? line + " --least-memory" : line;
}

}  // namespace

namespace {

// The changes that keep it within the device, together where one is not enough.
std::string solve_command(const std::string& input, const RunSetup& setup, WorkloadOptions options,
                          int64_t batch) {
  // What solve keeps to is of the whole process.
  if (RuntimeOptions& runtime = options.runtime; runtime.limit_bytes) {
    runtime.memory_bytes = *runtime.limit_bytes + setup.device.overhead_bytes();
    runtime.limit_bytes.reset();
  }
  return command_on_input("headroom solve", input, options, batch);
}

}  // namespace

int predict_trace(const Trace& trace, const std::string& input, const WorkloadOptions& options,
                  const std::optional<RecordedLimit>& limit, int64_t batch, bool json,
                  const Terminal& terminal) {
  require_one_device(options);
  const RunSetup setup = setup_to_fit_budget(options.runtime);
  const Traced program = traced_here(trace);
  const std::vector<TraceRow> rows = predict_all_strategies(program, setup, options.runtime.strategy);
  const LiveSet live = live_at_peak(program, setup, rows.front().prediction);
  const Prediction& chosen = rows.front().prediction;
  std::vector<std::string> next;
  if (!chosen.fits && is_of_torch(trace)) {
    Progress progress(0, "");
    progress.start("trying changes");
    TraceCheckpoints trace_again;
    if (is_program(input)) trace_again = trace_checkpoints(program_request(input, options, batch));
    for (const TorchChange& change : find_torch_changes(trace, setup, trace_again)) {
      next.push_back(change.text());
    }
    progress.finish();
    next.push_back(solve_command(input, setup, options, batch));
  }
  next.push_back(next_command(input, options, chosen.fits));
  if (json) {
    fmt::print("{}\n", to_json(program, input, setup, limit, rows, live, next));
  } else {
    print_text(program, input, setup, limit, rows, live, next, terminal);
  }
  return chosen.fits ? kExitDone : kExitOutOfMemory;
}

}  // namespace headroom
