#include <fmt/format.h>

#include <charconv>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "tools/repro/runs.h"
#include "tools/repro/texts.h"

namespace headroom::repro {
namespace {

constexpr std::pair<std::string_view, Run*> kRuns[] = {
    {"A1", run_a1}, {"A2", run_a2}, {"A3", run_a3}, {"A4", run_a4},   {"A5", run_a5},   {"A6", run_a6},
    {"A7", run_a7}, {"A8", run_a8}, {"A9", run_a9}, {"A10", run_a10}, {"A11", run_a11}, {"A12", run_a12},
    {"B1", run_b1}, {"B2", run_b2}, {"B3", run_b3}, {"B4", run_b4},   {"B5", run_b5},   {"B6", run_b6},
    {"B7", run_b7}, {"C1", run_c1}, {"C2", run_c2}, {"C3", run_c3},   {"C4", run_c4},   {"C5", run_c5},
    {"C6", run_c6}, {"C7", run_c7}, {"C8", run_c8}, {"C9", run_c9},   {"C10", run_c10}, {"C11", run_c11},
    {"D1", run_d1}, {"D2", run_d2}, {"D3", run_d3}, {"D4", run_d4},   {"D5", run_d5},   {"D6", run_d6},
    {"D7", run_d7}, {"D8", run_d8}};

// "431 MiB", "4", or any other text, in quotes or without.
std::variant<int64_t, std::string_view> value_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, text.data() + text.size());
  if (error == std::errc() && unit.empty()) return number;
  if (error == std::errc() && unit == " MiB") return number * kMiB;
  return text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
}

Expected figure_of(std::string_view row) {
  const std::vector<std::string_view> fields = split(row, " | ");
  Expected figure{fields.at(0), value_of(fields.at(1))};
  if (fields.size() > 2) figure.on = CheckedOn::kSimulated;
  if (fields.size() > 3) figure.differs_because = fields[3];
  return figure;
}

Scenario scenario_of(std::string_view heading, std::string_view lines) {
  constexpr std::string_view kFix = "fix: ";
  const std::vector<std::string_view> names = split(heading, " | ");
  Scenario scenario{names.at(0), names.at(1)};
  for (const auto& [id, run] : kRuns) {
    if (id == scenario.id) scenario.run = run;
  }
  for (const std::string_view row : rows_of(lines)) {
    if (scenario.story.empty()) {
      scenario.story = row;
    } else if (row == "only: sim") {
      scenario.on = CheckedOn::kSimulated;
    } else if (row.starts_with(kFix)) {
      scenario.fix = row.substr(kFix.size());
    } else {
      (scenario.fix.empty() ? scenario.expected : scenario.fixed).push_back(figure_of(row));
    }
  }
  return scenario;
}

}  // namespace

std::span<const Scenario> scenarios() {
  static const std::vector<Scenario> all = [] {
    std::vector<Scenario> read;
    for_each_section(scenarios_text(), [&](std::string_view heading, std::string_view lines) {
      read.push_back(scenario_of(heading, lines));
    });
    return read;
  }();
  return all;
}

const Scenario& find_scenario(std::string_view id) {
  std::vector<std::string_view> known;
  for (const Scenario& scenario : scenarios()) {
    if (lowered(scenario.id) == lowered(id)) return scenario;
    known.push_back(scenario.id);
  }
  throw InvalidArgument(fmt::format("unknown scenario '{}'; known: {}", id, list_with_suggestion(id, known)));
}

}  // namespace headroom::repro
