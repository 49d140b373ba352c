#include "tools/solve/curve.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace headroom::solve {
namespace {

bool has(const std::string& svg, const std::string& part) {
  return svg.find(part) != std::string::npos;
}

TEST(Curve, HasEachPointAndTheBudgetAndDrawsNothingOutside) {
  const CurvePoints same = {{500 * kMiB, 9.0}, {700 * kMiB, 0.0}}, other = {{400 * kMiB, 25.5}};
  const std::string svg = draw(same, other, 600 * kMiB);
  EXPECT_TRUE(has(svg, "<title>400.00 MiB, +25.5 %, other bits</title>")) << svg;
  EXPECT_TRUE(has(svg, "the budget"));
  EXPECT_FALSE(has(draw(same, other, 80 * kGiB), "the budget")) << "all of a card, far beyond the curve";
}

}  // namespace
}  // namespace headroom::solve
