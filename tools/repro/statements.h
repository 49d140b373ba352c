// Holds what the documents say that the scenarios come from, statement by statement: the experiment for each,
// its figure, and whether it is true. Runs nothing.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/enum_names.h"
#include "sheet/sheet.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {

enum class Truth : uint8_t { kTrue, kTrueThen, kFalse };
constexpr auto value_names(Truth) {
  return std::to_array<std::string_view>({"true", "true then, not now", "false"});
}

struct Statement {
  std::string_view says;
  std::string_view command;  // that shows it; empty: see the figure
  std::string_view
      figure;  // "{A2.process_bytes}" is a figure of A2, "{A12!.without_it_bytes}" one with its fix
  Truth truth = Truth::kTrue;
};
struct Document {
  std::string_view title;
  std::span<const Statement> statements;
};
std::span<const Document> documents();

// The figures of scenarios by id; "A12!" has those of A12 with its fix.
using MeasuredById = std::map<std::string, Measured, std::less<>>;
// The ids of all figures that statements name; without figures.
MeasuredById needed_scenarios();

Sheet statements_sheet(const MeasuredById& measured);
// The tables of docs/documents.md.
std::string statements_markdown(const MeasuredById& measured);

}  // namespace headroom::repro
