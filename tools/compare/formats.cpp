#include "tools/compare/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "tools/workload/lower_bound.h"
#include "trace/read_trace.h"

namespace headroom::compare {
namespace {

// "caching plan=packed".
std::string name_of(const ComparedRow& row) {
  return row.strategy + (row.settings.empty() ? "" : " " + row.settings);
}

std::string milliseconds(double seconds) {
  return shown_as(seconds, kMsOfSeconds);
}

// "unet, batch 8: 9 of 10 succeeded; least memory: mapped, 340.0 MiB; fastest: direct, 51.2 ms". Names no
// fastest one on a simulated device, and of those that ran a lower bound only where nothing else ran.
std::string summary(std::span<const ComparedRow> rows) {
  const ComparedRow *least = nullptr, *fastest = nullptr;
  size_t ran = 0;
  for (const ComparedRow& row : rows) {
    if (!row.ok()) continue;
    ++ran;
    const auto needs = [](const ComparedRow& r) {
      return std::pair(r.is_lower_bound, r.worst.peak_process_bytes);
    };
    if (least == nullptr || needs(row) < needs(*least)) least = &row;
    if (row.is_simulated) continue;
    if (fastest == nullptr || row.seconds_per_step < fastest->seconds_per_step) fastest = &row;
  }
  const std::string head = fmt::format("{}: {} of {} succeeded", rows.front().workload, ran, rows.size());
  if (least == nullptr) return head;
  std::string text = fmt::format("{}; least memory: {}, {}", head, name_of(*least),
                                 format_bytes(least->worst.peak_process_bytes));
  if (fastest != nullptr) {
    text += fmt::format("; fastest: {}, {} ms", name_of(*fastest), milliseconds(fastest->seconds_per_step));
  }
  return text;
}

// A simulated device has no time of a step.
std::string shown_time(const ComparedRow& row, const std::string& text) {
  return row.is_simulated ? "" : row.ok() ? text : "-";
}

}  // namespace

SheetTable to_table(std::span<const ComparedRow> rows) {
  SheetTable table{
      .key = "rows",
      .caption = "peaks in MiB; * marks Pareto-optimal rows",
      .columns = {{{}, "workload"},
                  {""},
                  {"strategy", "strategy"},
                  {"settings", "settings"},
                  {"outcome", "outcome"},
                  {.title = "process", .key = "peak_process_bytes", .unit = kMib, .has_bar = true},
                  {"ms/step", "seconds_per_step", kMsOfSeconds},
                  {"spread", "", kMsOfSeconds, 2},
                  {{}, "seconds_per_step_low"},
                  {{}, "seconds_per_step_high"},
                  {"device", "peak_device_bytes", kMib, 1},
                  {"reserved", "peak_reserved_bytes", kMib, 3},
                  {{}, "reserved_is_lower_bound"},
                  {"allocated", "peak_allocated_bytes", kMib, 4},
                  {"overhead", "overhead_bytes", kMib, 5},
                  {{}, "is_simulated"},
                  {"fragmentation", "fragmentation", kRatio, 6},
                  {"driver ms", "driver_seconds", kMsOfSeconds, 7},
                  {{}, "runs"},
                  {{}, "error"},
                  {{}, "is_pareto_optimal"}},
      .more = "--json or --html has all"};
  for (const ComparedRow& row : rows) {
    const Measurement& m = row.worst;
    const Cell outcome = row.ok() ? Cell(to_string(m.outcome)) : Cell(to_string(m.outcome), Color::kRed);
    const std::string spread = milliseconds(row.seconds_low) + ".." + milliseconds(row.seconds_high);
    table.add({row.workload,
               row.is_pareto_optimal ? "*" : "",
               row.strategy,
               row.settings,
               outcome,
               m.peak_process_bytes,
               {row.seconds_per_step, shown_time(row, milliseconds(row.seconds_per_step))},
               {Datum(), shown_time(row, spread)},
               row.seconds_low,
               row.seconds_high,
               m.peak_device_bytes,
               m.peak_reserved_bytes,
               row.is_lower_bound,
               m.peak_allocated_bytes,
               m.overhead_bytes,
               row.is_simulated,
               m.fragmentation,
               m.driver_seconds,
               row.runs,
               m.error,
               row.is_pareto_optimal},
              row.is_pareto_optimal ? Mark::kBest : (row.ok() ? Mark::kNone : Mark::kFailed));
  }
  return table;
}

Sheet to_sheet(std::span<const ComparedRow> rows, const std::string& title) {
  Sheet sheet{.title = title};
  // The rows of a workload follow each other.
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].workload == rows[begin].workload) ++end;
    const std::span<const ComparedRow> of_workload = rows.subspan(begin, end - begin);
    const bool fits = std::ranges::any_of(of_workload, [](const ComparedRow& row) { return row.ok(); });
    sheet.verdict(summary(of_workload), fits ? std::nullopt : std::optional(Color::kRed));
    sheet.table(to_table(of_workload)).heading = of_workload.front().workload;
    std::vector<std::string> bounds;
    for (const ComparedRow& row : of_workload) {
      if (!row.ok()) sheet.note(fmt::format("{}: {}", name_of(row), row.worst.error));
      if (row.is_lower_bound) bounds.push_back(row.strategy);
    }
    if (const std::string note = lower_bound_note(bounds); !note.empty()) sheet.note(note);
  }
  return sheet;
}

}  // namespace headroom::compare
