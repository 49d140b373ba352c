#include "tools/compare/formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/table.h"
#include "base/text.h"
#include "tools/workload/lower_bound.h"
#include "trace/read_trace.h"

namespace headroom::compare {
namespace {

using Json = nlohmann::ordered_json;

Json to_object(const ComparedRow& row) {
  const Measurement& m = row.worst;
  Json json;
  json["workload"] = row.workload;
  json["strategy"] = row.strategy;
  json["settings"] = row.settings;
  json["outcome"] = to_string(m.outcome);
  json["peak_device_bytes"] = m.peak_device_bytes;
  json["peak_process_bytes"] = m.peak_process_bytes;
  json["peak_reserved_bytes"] = m.peak_reserved_bytes;
  json["reserved_is_lower_bound"] = row.is_lower_bound;
  json["peak_allocated_bytes"] = m.peak_allocated_bytes;
  json["fragmentation"] = m.fragmentation;
  json["overhead_bytes"] = m.overhead_bytes;
  json["is_simulated"] = row.is_simulated;
  json["seconds_per_step"] = row.seconds_per_step;
  json["seconds_per_step_low"] = row.seconds_low;
  json["seconds_per_step_high"] = row.seconds_high;
  json["driver_seconds"] = m.driver_seconds;
  json["runs"] = row.runs;
  json["error"] = m.error;
  json["is_pareto_optimal"] = row.is_pareto_optimal;
  return json;
}

// A simulated device has no time of a step.
bool has_time(const ComparedRow& row) {
  return row.ok() && !row.is_simulated;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}
template <auto kBytes>
std::string mib(const ComparedRow& row) {
  return format_mib(row.worst.*kBytes);
}

constexpr Column kColumns[] = {
    {"", false, 0, [](const ComparedRow& row) { return std::string(row.is_pareto_optimal ? "*" : ""); }},
    {"strategy", false, 0, [](const ComparedRow& row) { return row.strategy; }},
    {"settings", false, 0, [](const ComparedRow& row) { return row.settings; }},
    {"outcome", false, 0, [](const ComparedRow& row) { return std::string(to_string(row.worst.outcome)); }},
    {"process", true, 0, mib<&Measurement::peak_process_bytes>},
    {"ms/step", true, 0,
     [](const ComparedRow& row) {
       return has_time(row) ? milliseconds(row.seconds_per_step) : row.is_simulated ? "" : "-";
     }},
    {"spread", true, 2,
     [](const ComparedRow& row) {
       return has_time(row)      ? milliseconds(row.seconds_low) + ".." + milliseconds(row.seconds_high)
              : row.is_simulated ? ""
                                 : "-";
     }},
    {"device", true, 1, mib<&Measurement::peak_device_bytes>},
    {"reserved", true, 3, mib<&Measurement::peak_reserved_bytes>},
    {"allocated", true, 4, mib<&Measurement::peak_allocated_bytes>},
    {"overhead", true, 5, mib<&Measurement::overhead_bytes>},
    {"fragmentation", true, 6,
     [](const ComparedRow& row) { return fmt::format("{:.3f}", row.worst.fragmentation); }},
    {"driver ms", true, 7, [](const ComparedRow& row) { return milliseconds(row.worst.driver_seconds); }},
};

std::string csv_field(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::span<const Column> columns() {
  return kColumns;
}

std::string name_of(const ComparedRow& row) {
  return row.strategy + (row.settings.empty() ? "" : " " + row.settings);
}

std::vector<std::string> workloads_of(std::span<const ComparedRow> rows) {
  std::vector<std::string> names;
  for (const ComparedRow& row : rows) {
    if (std::find(names.begin(), names.end(), row.workload) == names.end()) names.push_back(row.workload);
  }
  return names;
}

std::vector<const ComparedRow*> rows_of(std::span<const ComparedRow> rows, const std::string& workload) {
  std::vector<const ComparedRow*> found;
  for (const ComparedRow& row : rows) {
    if (row.workload == workload) found.push_back(&row);
  }
  return found;
}

// "unet, batch 8: 9 of 10 succeeded; least memory: mapped, 340.0 MiB; fastest: direct, 51.2 ms". Names no
// fastest one on a simulated device.
std::string summary(const std::string& workload, const std::vector<const ComparedRow*>& rows) {
  const ComparedRow *least = nullptr, *fastest = nullptr;
  size_t ran = 0;
  for (const ComparedRow* row : rows) {
    if (!row->ok()) continue;
    ++ran;
    if (least == nullptr || row->worst.peak_process_bytes < least->worst.peak_process_bytes) least = row;
    if (row->is_simulated) continue;
    if (fastest == nullptr || row->seconds_per_step < fastest->seconds_per_step) fastest = row;
  }
  const std::string head = fmt::format("{}: {} of {} succeeded", printable(workload), ran, rows.size());
  if (least == nullptr) return head;
  std::string text = fmt::format("{}; least memory: {}, {}", head, name_of(*least),
                                 format_bytes(least->worst.peak_process_bytes));
  if (fastest != nullptr) {
    text += fmt::format("; fastest: {}, {} ms", name_of(*fastest), milliseconds(fastest->seconds_per_step));
  }
  return text;
}

std::string bound_note(const std::vector<const ComparedRow*>& rows) {
  std::vector<std::string> strategies;
  for (const ComparedRow* row : rows) {
    if (row->is_lower_bound) strategies.push_back(row->strategy);
  }
  return lower_bound_note(strategies);
}

std::string to_text(std::span<const ComparedRow> rows, const Terminal& terminal) {
  std::string text;
  for (const std::string& workload : workloads_of(rows)) {
    const std::vector<const ComparedRow*> of_workload = rows_of(rows, workload);
    text +=
        terminal.wrapped(summary(workload, of_workload)) + "\n\npeaks in MiB; * marks Pareto-optimal rows\n";
    std::vector<TableColumn> columns;
    for (const Column& column : kColumns) {
      columns.push_back({.title = column.name, .is_number = column.is_number, .drop = column.drop});
    }
    Table table(std::move(columns));
    for (const ComparedRow* row : of_workload) {
      std::vector<TableCell> cells;
      for (const Column& column : kColumns) {
        cells.emplace_back(column.text(*row));
        if (row->is_pareto_optimal) cells.back().colour = Colour::kGreen;
        if (!row->ok() && column.name == std::string_view("outcome")) cells.back().colour = Colour::kRed;
      }
      table.add(std::move(cells));
    }
    text += table.text(terminal, "--json or --html has all");
    for (const ComparedRow* row : of_workload) {
      if (!row->ok()) text += terminal.wrapped(fmt::format("{}: {}", name_of(*row), row->worst.error)) + "\n";
    }
    if (const std::string note = bound_note(of_workload); !note.empty())
      text += terminal.wrapped(note) + "\n";
    text += "\n";
  }
  return text;
}

std::string to_json(std::span<const ComparedRow> rows) {
  Json json;
  json["rows"] = Json::array();
  for (const ComparedRow& row : rows) json["rows"].push_back(to_object(row));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_csv(std::span<const ComparedRow> rows) {
  std::string text;
  for (const ComparedRow& row : rows) {
    const Json object = to_object(row);
    std::vector<std::string> names, fields;
    for (const auto& [name, value] : object.items()) {
      names.push_back(name);
      fields.push_back(csv_field(value));
    }
    if (text.empty()) text = fmt::format("{}\r\n", fmt::join(names, ","));
    text += fmt::format("{}\r\n", fmt::join(fields, ","));
  }
  return text;
}

}  // namespace headroom::compare
