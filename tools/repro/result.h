// What a scenario measured beside what was reported, figure by figure, for people and programs. Runs nothing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/repro/scenario.h"

namespace headroom::repro {

// One figure of both sides; one of them may be missing.
struct Comparison {
  std::string name;
  std::optional<Measured::Figure> expected, measured;
  bool compared = false;                  // else only shown
  std::string_view differs_because = {};  // why our figure may differ from the reported one
  bool ok = true;
};

struct ScenarioResult {
  const Scenario* scenario = nullptr;
  std::string device;
  bool fixed = false;
  std::vector<Comparison> comparisons;
  std::vector<std::string> lines;  // what its user saw
  bool ok = true;
};

// On a real card sizes may differ by the pages that its driver takes.
ScenarioResult compare(const Scenario& scenario, const Stage& stage, const Measured& measured);

// {"scenarios": [{id, title, device, expected, measured, ok}]}, sizes in bytes.
std::string to_json(std::span<const ScenarioResult> results);
// What the first scenario of such JSON measured. Throws InvalidArgument for anything else.
Measured parse_measured(const std::string& json);

// One scenario with its story and what its user saw, or a table of many; the result first.
std::string describe(const ScenarioResult& result);
std::string describe(std::span<const ScenarioResult> results);
// All scenarios.
std::string describe_scenarios();
std::string scenarios_json();

}  // namespace headroom::repro
