// A comparison as a sheet. Knows no process.
#pragma once

#include <span>
#include <string>

#include "sheet/sheet.h"
#include "tools/compare/comparison.h"

namespace headroom::compare {

// Each row with all figures.
SheetTable to_table(std::span<const ComparedRow> rows);
// For each workload one line of summary, then its table. A star marks Pareto-optimal rows.
Sheet to_sheet(std::span<const ComparedRow> rows, const std::string& title);

}  // namespace headroom::compare
