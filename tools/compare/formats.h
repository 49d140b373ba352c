// A comparison as text, JSON, CSV and HTML. Knows no process.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "tools/compare/comparison.h"

namespace headroom::compare {

// For each workload one line of summary, then a table. A star marks Pareto-optimal rows.
std::string to_text(std::span<const ComparedRow> rows, const Terminal& terminal);
// An object with the list `rows`.
std::string to_json(std::span<const ComparedRow> rows);
// A header with the names of the JSON fields, then one line per row, as in RFC 4180.
std::string to_csv(std::span<const ComparedRow> rows);
// A self-contained page with a table for each workload, which a reader can sort. Escapes `title` and all
// texts of the rows.
std::string to_html(std::span<const ComparedRow> rows, const std::string& title);

// What the table of the terminal and that of the page are made of.
// A column of the text and HTML tables. Numbers are right-aligned.
struct Column {
  const char* name;
  bool is_number;
  int drop;  // see TableColumn
  std::string (*text)(const ComparedRow& row);
};
std::span<const Column> columns();
// Each workload once, and the rows of one.
std::vector<std::string> workloads_of(std::span<const ComparedRow> rows);
std::vector<const ComparedRow*> rows_of(std::span<const ComparedRow> rows, const std::string& workload);
// "unet, batch 8: 9 of 10 succeeded; least memory: mapped, 340.0 MiB; fastest: direct, 51.2 ms".
std::string summary(const std::string& workload, const std::vector<const ComparedRow*>& rows);
// Which of the rows are lower bounds, one line for each strategy; empty where none is.
std::string bound_note(const std::vector<const ComparedRow*>& rows);
// "caching plan=packed".
std::string name_of(const ComparedRow& row);

// The page around the tables, embedded by the build.
extern const std::string_view kPageBeforeData, kPageAfterData;

}  // namespace headroom::compare
