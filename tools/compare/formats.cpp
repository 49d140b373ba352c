#include "tools/compare/formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "allocators/trace/read_trace.h"
#include "runtime/base/bytes.h"
#include "runtime/base/text.h"

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
  json["peak_allocated_bytes"] = m.peak_allocated_bytes;
  json["fragmentation"] = m.fragmentation;
  json["overhead_bytes"] = m.overhead_bytes;
  json["seconds_per_step"] = row.seconds_per_step;
  json["seconds_per_step_low"] = row.seconds_low;
  json["seconds_per_step_high"] = row.seconds_high;
  json["driver_seconds"] = m.driver_seconds;
  json["runs"] = row.runs;
  json["error"] = m.error;
  json["is_pareto_optimal"] = row.is_pareto_optimal;
  return json;
}

// A column of the text and HTML tables. Numbers are right-aligned.
struct Column {
  const char* name;
  bool is_number;
  std::string (*text)(const ComparedRow& row);
};

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}
template <auto kBytes>
std::string mib(const ComparedRow& row) {
  return format_mib(row.worst.*kBytes);
}

// By importance: a narrow terminal cuts off the right side.
constexpr Column kColumns[] = {
    {"", false, [](const ComparedRow& row) { return std::string(row.is_pareto_optimal ? "*" : ""); }},
    {"strategy", false, [](const ComparedRow& row) { return row.strategy; }},
    {"settings", false, [](const ComparedRow& row) { return row.settings; }},
    {"outcome", false, [](const ComparedRow& row) { return std::string(to_string(row.worst.outcome)); }},
    {"process", true, mib<&Measurement::peak_process_bytes>},
    {"ms/step", true,
     [](const ComparedRow& row) { return row.ok() ? milliseconds(row.seconds_per_step) : "-"; }},
    {"spread", true,
     [](const ComparedRow& row) {
       return row.ok() ? milliseconds(row.seconds_low) + ".." + milliseconds(row.seconds_high) : "-";
     }},
    {"device", true, mib<&Measurement::peak_device_bytes>},
    {"reserved", true, mib<&Measurement::peak_reserved_bytes>},
    {"allocated", true, mib<&Measurement::peak_allocated_bytes>},
    {"overhead", true, mib<&Measurement::overhead_bytes>},
    {"fragmentation", true,
     [](const ComparedRow& row) { return fmt::format("{:.3f}", row.worst.fragmentation); }},
    {"driver ms", true, [](const ComparedRow& row) { return milliseconds(row.worst.driver_seconds); }},
};

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

// "unet, batch 8: 9 of 10 succeeded; least memory: mapped, 340.0 MiB; fastest: direct, 51.2 ms".
std::string summary(const std::string& workload, const std::vector<const ComparedRow*>& rows) {
  const ComparedRow *least = nullptr, *fastest = nullptr;
  size_t ran = 0;
  for (const ComparedRow* row : rows) {
    if (!row->ok()) continue;
    ++ran;
    if (least == nullptr || row->worst.peak_process_bytes < least->worst.peak_process_bytes) least = row;
    if (fastest == nullptr || row->seconds_per_step < fastest->seconds_per_step) fastest = row;
  }
  const std::string head = fmt::format("{}: {} of {} succeeded", printable(workload), ran, rows.size());
  if (least == nullptr) return head;
  return fmt::format("{}; least memory: {}, {}; fastest: {}, {} ms", head, name_of(*least),
                     format_bytes(least->worst.peak_process_bytes), name_of(*fastest),
                     milliseconds(fastest->seconds_per_step));
}

std::string csv_field(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

constexpr const char* kStyle =
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0 2em}"
    "th,td{padding:.3em .7em;border-bottom:1px solid #ccc;text-align:left}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}tr.best{background:#e7f5e7}"
    "tr.failed{color:#a00}";

}  // namespace

std::string to_text(std::span<const ComparedRow> rows) {
  std::string text;
  for (const std::string& workload : workloads_of(rows)) {
    const std::vector<const ComparedRow*> of_workload = rows_of(rows, workload);
    text += summary(workload, of_workload) + "\n\npeaks in MiB; * marks Pareto-optimal rows\n";
    std::vector<std::string> lines(of_workload.size() + 1);
    for (const Column& column : kColumns) {
      std::vector<std::string> cells = {column.name};
      for (const ComparedRow* row : of_workload) cells.push_back(column.text(*row));
      size_t width = 0;
      for (const std::string& cell : cells) width = std::max(width, cell.size());
      if (width == 0) continue;
      for (size_t i = 0; i < cells.size(); ++i) {
        lines[i] += column.is_number ? fmt::format("{:>{}}  ", cells[i], width)
                                     : fmt::format("{:<{}}  ", cells[i], width);
      }
    }
    for (std::string& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    for (const ComparedRow* row : of_workload) {
      if (!row->ok()) text += fmt::format("{}: {}\n", name_of(*row), row->worst.error);
    }
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

std::string to_html(std::span<const ComparedRow> rows, const std::string& title) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>Peaks in MiB; * marks Pareto-optimal rows.</p>\n",
      escaped(title), kStyle);
  for (const std::string& workload : workloads_of(rows)) {
    const std::vector<const ComparedRow*> of_workload = rows_of(rows, workload);
    html += fmt::format("<h2>{}</h2>\n<table><tr>", escaped(summary(workload, of_workload)));
    for (const Column& column : kColumns) {
      html += fmt::format("<th{}>{}</th>", column.is_number ? " class=\"n\"" : "", column.name);
    }
    html += "</tr>\n";
    for (const ComparedRow* row : of_workload) {
      html += fmt::format("<tr class=\"{}\" title=\"{}\">",
                          row->is_pareto_optimal ? "best" : (row->ok() ? "" : "failed"),
                          escaped(row->worst.error));
      for (const Column& column : kColumns) {
        html +=
            fmt::format("<td{}>{}</td>", column.is_number ? " class=\"n\"" : "", escaped(column.text(*row)));
      }
      html += "</tr>\n";
    }
    html += "</table>\n";
  }
  return html + "</body></html>\n";
}

}  // namespace headroom::compare
