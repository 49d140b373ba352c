// headroom replay: replays traces with memory strategies and capacities, on a simulated GPU: prints what
// fits, the memory and the speed.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "answers/out_of_memory.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/side_by_side.h"
#include "base/text.h"
#include "device/host/profiles.h"
#include "runtime/app/option_set.h"
#include "sheet/writers.h"
#include "tools/replay/replay_snapshot.h"
#include "tools/subcommands.h"
#include "tools/trace/command.h"
#include "tools/trace/tracing_options.h"
#include "tools/workload/input.h"
#include "tools/workload/lower_bound.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {
namespace {

struct ReplayOptions {
  std::vector<std::string> traces, strategies, capacities;
  std::string device = "sim:h200";
  std::string snapshot_event, record;
  TracingOptions traced;  // its device is the one above
  int64_t passes = 1;
  bool minimum = false;
  bool json = false;
};

struct ReplayRow {
  const Trace* trace;
  std::string strategy;
  ReplayRoom room;
  Prediction result = {.devices = {{}}};
  std::optional<int64_t> minimum_bytes = {};
  std::optional<OutOfMemoryReport> report = {};
  std::string refusal = {};  // why the strategy cannot replay this trace; empty if it can
};

DeviceProfile profile_of(const RuntimeOptions& options) {
  if (std::optional<DeviceProfile> profile = simulated_profile(options)) return *std::move(profile);
  throw InvalidArgument(fmt::format("--device {}: a replay runs on a simulated GPU, such as rtx-3090{}",
                                    options.device, card_suggestion(options.device)));
}

double ratio(int64_t bytes, int64_t of_bytes) {
  return of_bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(of_bytes);
}

std::string outcome(const ReplayRow& row) {
  if (!row.refusal.empty()) return "refused";
  if (row.result.fits) return "fits";
  return *row.result.failed_event == 0 ? "cannot start"
                                       : fmt::format("OOM at event {}", *row.result.failed_event);
}

// "7 of 9 fit into 4.00 GiB; not: caching, arena; refused: packed".
std::string summary(const Trace& trace, const std::vector<ReplayRow>& rows, const ReplayRoom& room) {
  size_t count = 0;
  std::vector<std::string_view> not_fitting, refused;
  for (const ReplayRow& row : rows) {
    if (row.trace != &trace || row.room.capacity_bytes() != room.capacity_bytes()) continue;
    ++count;
    if (!row.refusal.empty()) {
      refused.push_back(row.strategy);
    } else if (!row.result.fits) {
      not_fitting.push_back(row.strategy);
    }
  }
  const auto list = [](std::string_view what, const std::vector<std::string_view>& names) {
    return names.empty() ? "" : fmt::format("; {}: {}", what, fmt::join(names, ", "));
  };
  return fmt::format("{} of {} fit into {}{}", count - not_fitting.size() - refused.size(), count,
                     format_bytes(room.capacity_bytes()),
                     room.limit_bytes ? ", the limit of the recorded program" : "") +
         list("not", not_fitting) + list("refused", refused);
}

// Returns the reasons for which strategies refused the trace, each reason of each strategy once.
std::vector<std::string> refusals(const Trace& trace, const std::vector<ReplayRow>& rows) {
  std::vector<std::string> lines;
  for (const ReplayRow& row : rows) {
    if (row.trace != &trace || row.refusal.empty()) continue;
    std::string line = fmt::format("{} refused: {}", row.strategy, row.refusal);
    if (lines.empty() || lines.back() != line) lines.push_back(std::move(line));
  }
  return lines;
}

// "least capacity: mapped, 3850.0 MiB, 1.007 of the largest live set".
std::string least_capacity(const Trace& trace, const std::vector<ReplayRow>& rows) {
  const ReplayRow* least = nullptr;
  for (const ReplayRow& row : rows) {
    if (row.trace != &trace || !row.minimum_bytes) continue;
    if (least == nullptr || *row.minimum_bytes < *least->minimum_bytes) least = &row;
  }
  if (least == nullptr) return "no strategy fits into 64 times the largest live set";
  return fmt::format("least capacity: {}, {}, {:.3f} of the largest live set", least->strategy,
                     format_bytes(*least->minimum_bytes), ratio(*least->minimum_bytes, trace.peak_bytes));
}

Cell outcome_cell(const ReplayRow& row) {
  if (!row.refusal.empty()) return {outcome(row), Color::kYellow};
  return {outcome(row), row.result.fits ? Color::kGreen : Color::kRed};
}

SheetTable empty_table() {
  return {.key = "results",
          .caption = "memory in MiB, peaks",
          .columns = {{{}, "trace"},
                      {"strategy", "strategy"},
                      {"capacity", "capacity_bytes", kMib, 2},
                      {"verdict"},
                      {{}, "fits"},
                      {{}, "refusal"},
                      {{}, "failed_event"},
                      {"reserved", "peak_reserved_bytes", kMib},
                      {{}, "reserved_is_lower_bound"},
                      {"allocated", "peak_allocated_bytes", kMib, 6},
                      {"requested", "peak_requested_bytes", kMib, 5},
                      {"ratio", "", kRatio, 1},
                      {"fragmentation", "fragmentation", kRatio, 7},
                      {"driver calls", "driver_calls", kNumber, 4},
                      {"driver ms", "", kMsOfUs, 8},
                      {"ns/call", "ns_per_call", kTenths, 3},
                      {"minimum", "minimum_capacity_bytes", kMib},
                      {"ratio", "", kRatio, 1},
                      {{}, "lower_bound_bytes"},
                      {{}, "out_of_memory"}}};
}

void add_row(SheetTable& table, const ReplayRow& row) {
  const Statistics& now = row.result.front().statistics;
  const bool played = row.refusal.empty();
  // A strategy that refuses the trace has no figures.
  const auto known = [&](auto value) { return played ? Datum(value) : Datum(); };
  std::optional<double> minimum_ratio;
  if (row.minimum_bytes) minimum_ratio = ratio(*row.minimum_bytes, row.trace->peak_bytes);
  table.add({row.trace->name,
             row.strategy,
             row.room.capacity_bytes(),
             outcome_cell(row),
             played && row.result.fits,
             played ? Datum() : Datum(row.refusal),
             row.result.failed_event,
             known(now.reserved.peak),
             is_lower_bound(row.strategy),
             known(now.allocated.peak),
             known(now.requested.peak),
             known(ratio(now.reserved.peak, now.requested.peak)),
             known(row.result.front().fragmentation),
             known(now.driver_calls()),
             known(row.result.driver_time_us),
             {known(row.result.ns_per_call),
              row.result.ns_per_call > 0 ? shown_as(row.result.ns_per_call, kTenths) : "-"},
             row.minimum_bytes,
             minimum_ratio,
             row.trace->peak_bytes,
             row.report ? parse_json(to_json(*row.report)) : Datum()});
}

void add_trace(Sheet& sheet, const Trace& trace, const std::vector<ReplayRow>& rows,
               const std::vector<ReplayRoom>& rooms, bool minimum) {
  sheet.fact(fmt::format("{}: {}, {} events, {} blocks, {} stream{}, largest live set {}", trace.name,
                         trace.format, trace.recorded_events, trace.recorded_blocks, trace.streams.size(),
                         trace.streams.size() == 1 ? "" : "s", format_bytes(trace.peak_bytes)));
  for (const ReplayRoom& room : rooms) sheet.fact(summary(trace, rows, room));
  if (minimum) sheet.fact(least_capacity(trace, rows));
  SheetTable& table = sheet.table(empty_table());
  std::vector<std::string> played;
  for (const ReplayRow& row : rows) {
    if (row.trace != &trace) continue;
    add_row(table, row);
    played.push_back(row.strategy);
  }
  for (const std::string& line : refusals(trace, rows)) sheet.fact(line);
  if (const std::string note = lower_bound_note(played); !note.empty()) sheet.fact(note);
}

// Plays the trace on a device whose whole total is for the strategy.
Prediction play_alone(const Trace& trace, const RunSetup& setup, bool explains) {
  try {
    const StrategySettings settings = setup.options.strategy_settings();
    const int64_t total = setup.device.total_bytes;
    const int64_t most = std::min(total, settings.limit_bytes.value_or(INT64_MAX));
    if (!explains && most < trace.peak_bytes) return {};  // no strategy fits
    return play(traced_here(trace), setup_of_capacity(setup.device, prepared_for(trace, settings), total),
                {.explains = explains});
  } catch (const InvalidArgument& error) {  // a limit above the total
    return {.reason = error.what()};
  }
}

// Explains a failed replay if it is the only one; for several, the table suffices.
void explain_failure(ReplayRow& row, const DeviceProfile& profile) {
  RunSetup present{.device = profile, .options = {.strategy = row.strategy}};
  present.device.total_bytes = row.room.device_bytes;
  const StrategySettings own = parse_strategy(row.strategy);
  if (!own.limit_bytes && !own.memory_fraction) present.options.limit_bytes = row.room.limit_bytes;
  const Play play = [&row](const RunSetup& setup, bool explains) {
    return play_alone(*row.trace, setup, explains);
  };
  row.report = explain_out_of_memory(*row.result.facts, present, play);
}

void add_replay_options(OptionSet& set, ReplayOptions& options) {
  set.add_list("strategy", "Strategies to try (default: all)", &options.strategies);
  set.add_list("capacity",
               "Memory for the strategy, such as 16GiB (default: all that the device leaves to it)",
               &options.capacities);
  set.add_text("device",
               "Simulated GPU, such as rtx-3090 (default: the GPU that the trace names, else an H200)",
               &options.device);
  add_net_option(set, options.traced);
  add_batch_and_steps(set, options.traced);
  set.add_integer("passes", "Times to replay each trace; ns/call is from the fastest pass", &options.passes,
                  1, 1'000'000);
  set.add_switch("minimum", "Also find the smallest capacity at which each strategy fits", &options.minimum);
  set.add_text(
      "record",
      "Write the trace as this strategy served it, driver calls included, to this file, for headroom report",
      &options.record);
  set.add_text("snapshot-at",
               "Show what each strategy holds after an event instead: its number, peak, or end",
               &options.snapshot_event);
  set.add_switch("json", "Print JSON, sizes in bytes", &options.json);
}

// Returns the same command with the smallest change that fits or, if none does, with the search for the
// smallest capacity.
std::string next_command(const ReplayRow& row, const ReplayOptions& options, const OptionSet& set) {
  ReplayOptions changed;
  OptionSet other({}, {});
  add_replay_options(other, changed);
  changed = options;
  changed.traces.clear();
  changed.json = false;
  const TriedChange* change = row.report ? row.report->smallest() : nullptr;
  if (change == nullptr) {
    changed.minimum = true;
    changed.record.clear();  // is of one run
  } else {
    const RunSetup& setup = change->setup;
    changed.capacities = {exact_size(setup.device.total_bytes)};
    changed.strategies = {setup.options.strategy + (setup.options.limit_bytes
                                                        ? "+limit=" + exact_size(*setup.options.limit_bytes)
                                                        : "")};
  }
  if (!set.is_given("device")) changed.device = ReplayOptions{}.device;
  const std::vector<std::string> words = other.words(OptionSet::Words::kChanged);
  const std::vector<std::string>& traces = options.traces;  // the last may be a command
  if (traces.empty()) return command_line("headroom replay", words);
  const std::string line = command_line("headroom replay", std::span(traces).first(traces.size() - 1));
  return command_on(line, traces.back(), words);
}

std::vector<ReplayRow> replay_all(const std::vector<Trace>& traces, const std::vector<std::string>& names,
                                  const std::vector<ReplayRoom>& rooms, const DeviceProfile& profile,
                                  const ReplayOptions& options) {
  std::vector<StrategySettings> parsed;
  for (const std::string& name : names) parsed.push_back(parse_strategy(name));
  std::vector<ReplayRow> rows;
  // A search for the least capacity takes about twenty replays.
  constexpr double kSearch = 20;
  constexpr size_t kThreads = 4;  // each plays a trace, with memory for its live blocks
  double events = 0;
  for (const Trace& trace : traces) {
    events += static_cast<double>(trace.events.size());
    for (const std::string& name : names) {
      for (const ReplayRoom& room : rooms) rows.push_back({&trace, name, room});
    }
  }
  const auto passes = static_cast<double>(options.passes);
  const double replays = static_cast<double>(rooms.size()) + (options.minimum ? kSearch : 0);
  Progress progress(events * passes * static_cast<double>(names.size()) * replays, "events");
  // One strategy on one trace.
  const auto replay_rows = [&](std::span<ReplayRow> same, StrategySettings settings) {
    const Trace& trace = *same.front().trace;
    const double events_of_pass = static_cast<double>(trace.events.size()) * passes;
    if (!options.record.empty()) settings.record_path = options.record;
    try {
      settings = prepared_for(trace, std::move(settings));
    } catch (const InvalidArgument& error) {
      for (ReplayRow& row : same) row.refusal = error.what();
      return progress.advance(events_of_pass * replays);
    }
    for (ReplayRow& row : same) {
      progress.start(fmt::format("{} in {}", row.strategy, format_bytes(row.room.capacity_bytes())));
      try {
        row.result = play(traced_here(trace),
                          setup_of_capacity(profile, row.room.limited(settings), row.room.device_bytes),
                          {.passes = options.passes, .to_last_event = true});
      } catch (const InvalidArgument& error) {
        row.refusal = error.what();
      }
      progress.advance(events_of_pass);
    }
    if (!options.minimum) return;
    progress.start(fmt::format("the least capacity for {}", same.front().strategy));
    const std::optional<int64_t> least =
        least_total_bytes(traced_here(trace), setup_of_capacity(profile, settings, trace.peak_bytes),
                          {.passes = options.passes});
    progress.advance(events_of_pass * kSearch);
    for (ReplayRow& row : same) row.minimum_bytes = least;
  };
  // Rows that prepare begin first: they take longest.
  std::vector<size_t> order(rows.size() / rooms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return plans_ahead(parsed[i % parsed.size()]); });
  // Plugins may have state of their own.
  const bool has_plugin =
      std::ranges::any_of(parsed, [](const StrategySettings& one) { return !one.plugin_path.empty(); });
  side_by_side(order.size(), has_plugin ? 1 : kThreads, [&](size_t i) {
    const std::span<ReplayRow> same = std::span(rows).subspan(order[i] * rooms.size(), rooms.size());
    replay_rows(same, parsed[order[i] % parsed.size()]);
  });
  const auto is_refused = [](const ReplayRow& row) { return !row.refusal.empty(); };
  if (std::ranges::all_of(rows, is_refused)) throw InvalidArgument(rows.front().refusal);
  return rows;
}

}  // namespace

int run_replay(int argc, char** argv) {
  ReplayOptions options;
  OptionSet set("headroom replay",
                "Replays allocation traces with memory strategies on a simulated GPU and prints what fits.\n"
                "Driver calls count allocations, releases, and mapped and unmapped pages of all passes.");
  set.add_arguments(
      "TRACE",
      "Our own traces, op,id,bytes CSV, RMM logs, PyTorch memory snapshots, gzipped or not; or a PyTorch "
      "program: FILE.py:FUNCTION, or its command after --",
      &options.traces, true, "net");
  set.take_command();
  add_replay_options(set, options);
  set.set_examples(
      "  headroom replay run.csv.gz                                 every strategy, on an H200\n"
      "  headroom replay run.trace --capacity 8GiB 16GiB --minimum  what fits, and the smallest capacity\n"
      "  headroom replay train.py:make_step --batch 16 --device rtx-3090\n"
      "  headroom replay snapshot.pickle --strategy allow-growth direct\n"
      "  headroom replay --net lenet --batch 64                     the planned step of a net\n"
      "  headroom replay run.trace --strategy caching --snapshot-at peak\n"
      "  headroom replay run.csv --json | jq '.results[] | select(.fits).strategy'\n");
  if (!set.parse(argc, argv, std::cout)) return kExitDone;

  check_inputs(set, options.traces, options.traced, {"batch", "steps"});
  options.traced.device = options.device;
  std::vector<Trace> traces;
  if (options.traces.empty()) traces.push_back(trace_of_net(options.traced));
  Progress reading(0, "");
  for (const std::string& input : options.traces) {
    for (Trace& trace : read_inputs(input, options.traced, reading)) traces.push_back(std::move(trace));
  }
  reading.finish();
  RuntimeOptions machine{.device = options.device};
  if (!set.is_given("device") && traces.size() == 1) {
    machine = with_recorded_device(machine, traces.front());
    use_recorded_limit(set, traces.front(), machine);
  }
  const DeviceProfile profile = profile_of(machine);
  for (const Trace& trace : traces) print_traced_device_note(set, trace, machine);
  std::vector<ReplayRoom> rooms;
  for (const std::string& text : options.capacities) {
    rooms.push_back({parse_bytes(text, "--capacity")});
    if (rooms.back().device_bytes < profile.granularity_bytes) {
      throw InvalidArgument(fmt::format("--capacity {}: less than one page of {}", text,
                                        format_bytes(profile.granularity_bytes)));
    }
  }
  if (rooms.empty()) {
    // Libraries of a program count with it alone.
    const RunSetup setup{.device = profile, .options = {}};
    const int64_t capacity =
        capacity_bytes(traces.size() == 1 ? with_libraries(traced_here(traces.front()), setup) : setup);
    if (capacity < profile.granularity_bytes) {
      throw InvalidArgument(fmt::format(
          "a device of {}, of which other processes hold {}, and context and libraries {}, leaves "
          "no memory to play in: pass --capacity SIZE or --device NAME",
          format_bytes(profile.total_bytes), format_bytes(profile.others_bytes),
          format_bytes(profile.overhead_bytes())));
    }
    rooms.push_back({capacity, machine.limit_bytes});
  }
  std::vector<std::string> names = options.strategies;
  if (names.empty()) {
    for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  }
  if (!options.snapshot_event.empty()) {
    if (rooms.size() > 1) throw InvalidArgument("--snapshot-at shows one capacity: pass one");
    print(show_snapshots(traces, names, profile, rooms.front(), options.snapshot_event), options.json,
          set.terminal());
    return kExitDone;
  }
  if (!options.record.empty()) {
    if (traces.size() * names.size() * rooms.size() != 1 || options.minimum) {
      throw InvalidArgument(
          "--record records one run: pass one trace, one --strategy, one --capacity, no --minimum");
    }
    if (!options.traces.empty() && is_same_file(options.record, options.traces[0])) {
      throw InvalidArgument(
          fmt::format("--record {}: would overwrite the trace that is played", options.record));
    }
  }
  std::vector<ReplayRow> rows = replay_all(traces, names, rooms, profile, options);
  if (rows.size() == 1 && rows[0].result.failed_event.value_or(0) > 0) explain_failure(rows[0], profile);
  Sheet sheet;
  for (const Trace& trace : traces) add_trace(sheet, trace, rows, rooms, options.minimum);
  if (rows.size() == 1 && rows[0].report) {
    sheet.lines(fmt::format("at event {}: {}", *rows[0].result.failed_event, to_text(*rows[0].report)));
  }
  sheet.next = {{options.minimum ? "headroom strategies" : next_command(rows.front(), options, set)}};
  print(sheet, options.json, set.terminal());
  return kExitDone;
}

}  // namespace headroom
