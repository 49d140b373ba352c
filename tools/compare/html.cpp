#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tools/compare/formats.h"
#include "tools/workload/html_text.h"

namespace headroom::compare {
namespace {

// The share of the largest peak of any row, for the bar below it.
std::string meter(const ComparedRow& row, const std::vector<const ComparedRow*>& rows,
                  const std::string& text) {
  int64_t most = 1;
  for (const ComparedRow* other : rows) most = std::max(most, other->worst.peak_process_bytes);
  const double share = 100 * static_cast<double>(row.worst.peak_process_bytes) / static_cast<double>(most);
  return fmt::format("<span>{}</span><i style=\"width:{:.1f}%\"></i>", text, share);
}

std::string cell(const Column& column, const ComparedRow& row, const std::vector<const ComparedRow*>& rows) {
  const std::string text = escaped_html(column.text(row));
  const std::string_view name = column.name;
  if (name.empty()) return fmt::format("<td class=\"star\">{}</td>", text);
  if (name == "outcome") {
    return fmt::format("<td class=\"outcome\" title=\"{}\">{}</td>", escaped_html(row.worst.error), text);
  }
  if (!column.is_number)
    return fmt::format("<td{}>{}</td>", name == "strategy" ? " class=\"name\"" : "", text);
  const bool is_meter = name == "process";
  return fmt::format("<td class=\"n{}\" data-name=\"{}\" data-value=\"{}\">{}</td>", is_meter ? " meter" : "",
                     name, std::strtod(text.c_str(), nullptr), is_meter ? meter(row, rows, text) : text);
}

std::string section(const std::string& workload, const std::vector<const ComparedRow*>& rows) {
  std::string html =
      fmt::format("<section>\n<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>",
                  escaped_html(workload));
  // A column without any text is not shown.
  std::vector<const Column*> shown;
  for (const Column& column : columns()) {
    const bool has_text = std::any_of(rows.begin(), rows.end(),
                                      [&](const ComparedRow* row) { return !column.text(*row).empty(); });
    if (has_text) shown.push_back(&column);
  }
  for (const Column* column : shown) {
    html += fmt::format("<th{}>{}</th>", column->is_number ? " class=\"n\"" : "", column->name);
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const ComparedRow* row : rows) {
    html += fmt::format("<tr class=\"{}\">", row->is_pareto_optimal ? "best" : (row->ok() ? "" : "failed"));
    for (const Column* column : shown) html += cell(*column, *row, rows);
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  for (const ComparedRow* row : rows) {
    if (row->ok()) continue;
    html += fmt::format("<p class=\"note\">{}: {}</p>\n", escaped_html(name_of(*row)),
                        escaped_html(row->worst.error));
  }
  if (const std::string note = bound_note(rows); !note.empty()) {
    html += fmt::format("<p class=\"note\">{}</p>\n", escaped_html(note));
  }
  return html + "</section>\n";
}

}  // namespace

std::string to_html(std::span<const ComparedRow> rows, const std::string& title) {
  const std::vector<std::string> workloads = workloads_of(rows);
  std::string html(kPageBeforeData);
  html += "<header>\n";
  for (const std::string& workload : workloads) {
    const std::vector<const ComparedRow*> of_workload = rows_of(rows, workload);
    const bool fits =
        std::any_of(of_workload.begin(), of_workload.end(), [](const ComparedRow* row) { return row->ok(); });
    html += fmt::format("<p class=\"verdict{}\">{}.</p>\n", fits ? "" : " bad",
                        escaped_html(summary(workload, of_workload)));
  }
  html += fmt::format(
      "<h1>{}</h1>\n<p>Peaks in MiB, times of a step; * marks Pareto-optimal rows: no other takes "
      "less memory without being slower. Click a heading to sort.</p>\n</header>\n<main>\n",
      escaped_html(title));
  for (const std::string& workload : workloads) html += section(workload, rows_of(rows, workload));
  html += "</main>\n";
  return html + std::string(kPageAfterData);
}

}  // namespace headroom::compare
