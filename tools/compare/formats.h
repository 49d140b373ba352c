// A comparison as text, JSON, CSV and HTML. Knows no process.
#pragma once

#include <span>
#include <string>

#include "tools/compare/comparison.h"

namespace headroom::compare {

// For each workload one line of summary, then a table. A star marks Pareto-optimal rows.
std::string to_text(std::span<const ComparedRow> rows);
// An object with the list `rows`.
std::string to_json(std::span<const ComparedRow> rows);
// A header with the names of the JSON fields, then one line per row, as in RFC 4180.
std::string to_csv(std::span<const ComparedRow> rows);
// A self-contained page. Escapes `title` and all texts of the rows.
std::string to_html(std::span<const ComparedRow> rows, const std::string& title);

}  // namespace headroom::compare
