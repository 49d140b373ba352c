// What libraries' plans cost, kept in one file between runs: timing all plans of a network takes longer than
// starting a program. Knows no library and no device: a problem is a line of text, so is a plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cuda {

// One way to compute a problem: the plan in words that its library takes, and what it costs.
struct PlanChoice {
  std::string plan;
  double time_us = 0;
  int64_t workspace_bytes = 0;
  bool operator==(const PlanChoice&) const = default;
};

// What one search found.
struct PlanSet {
  int64_t limit_bytes = 0;          // plans with a larger workspace were not looked at
  std::vector<PlanChoice> choices;  // a Pareto front, the fastest first
  bool operator==(const PlanSet&) const = default;
};

using PlanTable = std::map<std::string, PlanSet>;  // by problem

// The choices that no other beats in both time and workspace: by time ascending, by workspace descending.
std::vector<PlanChoice> pareto_front(std::vector<PlanChoice> choices);

// The table that `text` holds. Throws InvalidArgument for what plans_text has not written.
PlanTable parse_plans(std::string_view text);
// The table as the text of a file.
std::string plans_text(const PlanTable& table);

// Where plans are kept: what HEADROOM_PLAN_CACHE names, or plans.json in $XDG_CACHE_HOME/headroom or
// ~/.cache/headroom. Empty when HEADROOM_PLAN_CACHE is "off" or there is no home.
std::string plan_cache_path();

// What is kept for a problem. A file that cannot be read or is not ours counts as empty: everything in it can
// be measured again.
std::optional<PlanSet> kept_plans(const std::string& path, const std::string& problem);
// Adds what a search found to the file, replacing it as a whole, so that other processes see the old one or
// the new one. False, and nothing has changed, when the file cannot be written or holds something else.
bool keep_plans(const std::string& path, const std::string& problem, const PlanSet& plans) noexcept;

}  // namespace headroom::cuda
