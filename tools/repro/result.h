// The figures that a scenario measured and those reported, for people and programs. Runs nothing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sheet/sheet.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {

// One figure of both sides; one of them may be missing.
struct Comparison {
  std::string name;
  std::optional<Measured::Figure> expected, measured;
  bool compared = false;                  // else only shown
  std::string_view differs_because = {};  // reason that our figure may differ from the reported one
  bool ok = true;
};

struct ScenarioResult {
  const Scenario* scenario = nullptr;
  std::string device;
  bool fixed = false;
  std::vector<Comparison> comparisons;
  std::vector<std::string> lines;  // lines that its user saw
  bool ok = true;
};

// On a real card sizes may differ by the pages that its driver takes.
ScenarioResult compare(const Scenario& scenario, const Stage& stage, const Measured& measured);

// One scenario with its story, its figures and what its user saw; the result first. `options` are those that
// the next command repeats: " --device cuda --force". JSON is {"scenarios": [{id, title, device, expected,
// measured, ok}]}, as it is of many.
Sheet to_sheet(const ScenarioResult& result, std::string_view options);
// A line for each of many; the figures of those that differ, and with `verbose` of all.
Sheet to_sheet(std::span<const ScenarioResult> results, bool verbose, std::string_view options);
// A figure as people read it: a size in MiB, a time in us, a text as it is.
std::string figure_text(std::string_view name, const Measured::Figure& figure);
// All scenarios.
Sheet scenario_list();
// The sections of docs/scenarios.md.
std::string scenarios_markdown();

// Returns the measurements of the first scenario in such JSON. Throws InvalidArgument for anything else.
Measured parse_measured(const std::string& json);

}  // namespace headroom::repro
