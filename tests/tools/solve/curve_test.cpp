#include "tools/solve/curve.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace headroom::solve {
namespace {

bool has(const std::string& svg, const std::string& part) {
  return svg.find(part) != std::string::npos;
}

TEST(Curve, HasEachPointAndTheBudgetAndDrawsNothingOutside) {
  const std::vector<CurveLine> lines = {{"same bits", {{500 * kMiB, 9.0}, {700 * kMiB, 0.0}}},
                                        {"in <parts>", {{400 * kMiB, 25.5}}}};
  const std::string svg = draw(lines, 600 * kMiB);
  EXPECT_TRUE(has(svg, "<title>400.00 MiB, +25.5 %, in &lt;parts&gt;</title>")) << svg;
  EXPECT_TRUE(has(svg, "the budget"));
  EXPECT_FALSE(has(draw(lines, 80 * kGiB), "the budget")) << "all of a card, far beyond the curve";
}

}  // namespace
}  // namespace headroom::solve
