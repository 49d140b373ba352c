// A comparison for people, for programs and for spreadsheets. Knows no process.
#pragma once

#include <span>
#include <string>

#include "tools/compare/comparison.h"

namespace headroom::compare {

// For each workload the verdict, then a table; unbeaten rows have a star.
std::string to_text(std::span<const ComparedRow> rows);
// One object with a list `rows`.
std::string to_json(std::span<const ComparedRow> rows);
// A head line with JSON's names, then a line for each row, as RFC 4180 says.
std::string to_csv(std::span<const ComparedRow> rows);
// A page that needs nothing else; `title` and texts of rows may hold anything.
std::string to_html(std::span<const ComparedRow> rows, const std::string& title);

}  // namespace headroom::compare
