#include "tools/solve/solve_page.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"

namespace headroom::solve {
namespace {

SolvePage small_page() {
  return {
      .keeps = true,
      .title = "a <net>",
      .verdict = "Fits: takes 599 MiB.",
      .facts = {"1 GiB more would save 5 ms a step: recompute costs 5 ms less."},
      .memory_bytes = 600 * kMiB,
      .lines = {{"same bits", {{500 * kMiB, 9.0}, {700 * kMiB, 0.0}}}, {"in parts", {{400 * kMiB, 25.5}}}},
      .tables = {{"Levers", {{"lever"}, {"costs ms", true}}, {{"recompute", "5.233"}}}, {"Empty", {}, {}}}};
}

bool has(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

TEST(SolvePage, HasTheAnswerTheCurveAndTheTablesAndNeedsNoNetwork) {
  const std::string html = to_html(small_page());
  EXPECT_TRUE(has(html, "<h1>a &lt;net&gt;</h1>"));
  EXPECT_TRUE(has(html, "Fits: takes 599 MiB."));
  EXPECT_TRUE(has(html, "recompute costs 5 ms less"));
  EXPECT_TRUE(has(html, "data-value=\"5.233\""));
  EXPECT_TRUE(has(html, "<title>400.00 MiB, +25.5 %, in parts</title>"));
  EXPECT_TRUE(has(html, "the budget"));
  EXPECT_FALSE(has(html, "Empty")) << "a table without rows";
  EXPECT_FALSE(has(html, "://"));
}

TEST(SolvePage, LinesOfAProgramKeepTheirIndentation) {
  SolvePage page = small_page();
  page.code = {"for block in net.h[:3]:", "    block.forward = f(block.forward, \"x\" < 3)"};
  EXPECT_TRUE(
      has(to_html(page),
          "<pre><code>for block in net.h[:3]:\n    block.forward = f(block.forward, &quot;x&quot; &lt; "
          "3)\n</code></pre>"));
}

TEST(SolvePage, DrawsNothingWithoutPointsAndNothingOutside) {
  SolvePage page = small_page();
  page.keeps = false;
  page.memory_bytes = 80 * kGiB;  // all of a card
  EXPECT_FALSE(has(to_html(page), "the budget")) << "far beyond the curve";
  page.lines.clear();
  const std::string html = to_html(page);
  EXPECT_FALSE(has(html, "<svg"));
  EXPECT_TRUE(has(html, "verdict bad"));
}

}  // namespace
}  // namespace headroom::solve
