// Two numbers of an error, one larger than the other may be, in the words of programs that no rule knows.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>

#include "tests/tools/explain_examples.h"
#include "tools/explain/explanation.h"

namespace headroom::explain {
namespace {

TEST(NumberPair, IsReadInAnyWords) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"ValueError: Widget rank 64 is greater than max_widget_rank 16.", "64 (Widget rank) is more than 16",
       "max_widget_rank=64"},
      {"ValueError: Fleet size (8) cannot be larger than the number of available engines (4).",
       "8 (Fleet size)", "Fleet size: 4 or less"},
      {"{\"error\":{\"message\":\"prompt of 9001 words exceeds --max-words 4096\"}}", "9001",
       "--max-words 9001"},
      {"RuntimeError: pool of 2048 slots is smaller than the required 4096 slots", "4096 is more than 2048",
       "2048 or less"},
      {"frobd: error: no room for the batch\nRequired frames: 96, Available frames: 32, Total frames: 64",
       "96 (Required frames) is more than 32", "32 or less"},
      {"frobd: error: Requested 5.5 GiB, but the limit is 4 GiB", "5.50 GiB", "4.00 GiB or less"},
  };
  for (const auto& [line, reason, step] : cases) {
    const Explanation explanation = explain_text(std::string("INFO starting\n") + line + "\n");
    EXPECT_EQ(explanation.judgment.cause, Cause::kLimit) << line << explanation.judgment.reason;
    EXPECT_NE(explanation.judgment.reason.find(reason), std::string::npos) << explanation.judgment.reason;
    EXPECT_NE(steps_of(explanation).find(step), std::string::npos) << steps_of(explanation);
  }
}

// Comparisons that hold, versions, ports, shapes and warnings are no limits that were passed.
TEST(NumberPair, IsNotMadeOfWhatIsNone) {
  for (const char* line :
       {"ValueError: n_items 4 is greater than max_items 16",
        "ERROR: frob 2.1 requires bar, but you have bar "
        "3.0 which is larger than 2.9",
        "ConnectionError: Pool(host='x.org', port=443): Max retries exceeded with url: /api/7 (Caused by "
        "...)",
        "ValueError: The size of tensor a (4096) must match the size of tensor b (2048)",
        "ValueError: Expected more than 1 value per channel, got input size [1, 256]",
        "ERROR: 8 workers are up, 2 of the available 4 wait",
        "RecursionError: maximum recursion depth exceeded", "ValueError: max_steps must be greater than 0"}) {
    EXPECT_EQ(explain_text(std::string(line) + "\n").judgment.cause, Cause::kUnknown) << line;
  }
  EXPECT_EQ(explain_text("WARNING: 64 lanes are more than the 16 that are used at once\n").judgment.cause,
            Cause::kNone);
}

}  // namespace
}  // namespace headroom::explain
