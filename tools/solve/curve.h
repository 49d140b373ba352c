// The curve of memory against time of a solution, as a picture. Knows neither nets nor programs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headroom::solve {

// Budgets, by ascending memory, and how many percent more time a step takes in each.
using CurvePoints = std::vector<std::pair<int64_t, double>>;

// The lines of solutions with the same bits and with others, of which one may be empty, and the budget, as
// SVG.
std::string draw(const CurvePoints& same_bits, const CurvePoints& other_bits, int64_t budget_bytes);

}  // namespace headroom::solve
