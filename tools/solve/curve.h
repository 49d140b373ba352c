// The curve of memory against time of a solution, as a picture. Knows neither nets nor programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headroom::solve {

struct CurveLine {
  // A budget, and how much more time a step takes in it.
  struct Point {
    int64_t memory_bytes = 0;
    double more_percent = 0;
  };
  std::string name;           // "same bits"
  std::vector<Point> points;  // by ascending memory, at least one
};

// The lines, two at most, and the budget, as SVG.
std::string draw(std::span<const CurveLine> lines, int64_t budget_bytes);

}  // namespace headroom::solve
