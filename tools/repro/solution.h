// Finds a run for a scenario that trains on the same card, from a memory budget only: it is not told the fix.
// Gives the reason if no plan can help.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/enum_names.h"
#include "sheet/sheet.h"
#include "tools/repro/scenario.h"

namespace headroom::repro {

enum class SolveOutcome : uint8_t { kSolved, kRefused, kNotAboutMemory };
constexpr auto value_names(SolveOutcome) {
  return std::to_array<std::string_view>({"solved", "refused", "not about memory"});
}

struct Solved {
  const Scenario* scenario = nullptr;
  SolveOutcome outcome = SolveOutcome::kNotAboutMemory;
  std::string text = {};                        // settings that run, or the reason that none does; one line
  std::string next = {};                        // a command that runs it
  int64_t memory_bytes = 0, process_bytes = 0;  // the budget, and what the run took
};

// On simulated cards. A run that was planned is made, and must train.
Solved solve(const Scenario& scenario);

Sheet to_sheet(std::span<const Solved> solved);

}  // namespace headroom::repro
