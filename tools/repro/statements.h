// The statements of the documents that the scenarios come from (statements.txt): the experiment for each, its
// figure, and whether it is true. Runs nothing.
#pragma once

#include <cstdint>
#include <map>
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

// The figures of scenarios by id; "A12!" has those of A12 with its fix.
using MeasuredById = std::map<std::string, Measured, std::less<>>;
// The ids of all figures that statements name; without figures.
MeasuredById needed_scenarios();

Sheet statements_sheet(const MeasuredById& measured);
// The tables of docs/documents.md.
std::string statements_markdown(const MeasuredById& measured);

}  // namespace headroom::repro
