// What a scenario came to beside what was expected, figure by figure, for people and for programs. Runs
// nothing.
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
  bool compared = false;                  // or only shown
  std::string_view differs_because = {};  // of a figure that is ours, not theirs
  bool ok = true;
};

struct Judgement {
  const Scenario* scenario = nullptr;
  std::string device;
  bool cured = false;
  std::vector<Comparison> comparisons;
  std::vector<std::string> lines;  // what its user saw
  bool ok = true;
};

// On a real card sizes may differ by the pages that its driver takes beside.
Judgement judge(const Scenario& scenario, const Stage& stage, const Measured& measured);

// {"scenarios": [{id, title, device, expected, measured, ok}]}, sizes in bytes.
std::string to_json(std::span<const Judgement> judgements);
// What the first scenario of such a text measured. Throws InvalidArgument for anything else.
Measured parse_measured(const std::string& json);

// One scenario with its story and what was seen, or a table of many; the verdict first.
std::string describe(const Judgement& judgement);
std::string describe(std::span<const Judgement> judgements);
// What there is, as a table.
std::string describe_scenarios();
std::string scenarios_json();

}  // namespace headroom::repro
