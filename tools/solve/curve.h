// The curve of memory against time of a solution, as a picture. Knows neither nets nor programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace headroom::solve {

struct CurveLine {
  std::string name;  // "same bits"
  // Budgets, by ascending memory, and how many percent more time a step takes in each; at least one.
  std::vector<std::pair<int64_t, double>> points;
};

// The lines, two at most, and the budget, as SVG.
std::string draw(std::span<const CurveLine> lines, int64_t budget_bytes);

}  // namespace headroom::solve
