// Tests that output fits the terminal: lines, tables, progress.
#include "base/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/progress.h"
#include "base/table.h"

namespace headroom {
namespace {

size_t widest(const std::string& text) {
  std::istringstream lines(text);
  size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, characters(line));
  return most;
}

Table example() {
  Table table({{"strategy"},
               {.title = "verdict"},
               {.title = "reserved", .is_number = true},
               {.title = "driver calls", .is_number = true, .drop = 2},
               {.title = "share", .is_number = true, .drop = 1},
               {.title = "why", .wraps = true}});
  table.add({"caching",
             {"fits", Color::kGreen},
             "1202.5",
             "17",
             "3 %",
             "blocks are kept and cut to what is asked"});
  table.add({"grab-all", {"OOM", Color::kRed}, "9.0", "1", "100 %", ""});
  return table;
}

TEST(Terminal, WrapsAtBlanksAndCutsWithDots) {
  const Terminal terminal(20, false);
  EXPECT_EQ(terminal.wrapped("one two three four five six", 2), "one two three four\n  five six");
  EXPECT_EQ(terminal.cut("one two three four five six", 5, 0), "one two thre...");
  EXPECT_EQ(Terminal(0, false).wrapped("one two three four five six"), "one two three four five six");
}

TEST(Terminal, CountsCharactersAndNotBytes) {
  EXPECT_EQ(characters("größe"), 5u);
  EXPECT_EQ(first_characters("größe", 3), "grö");
  EXPECT_EQ(first_characters("ab", 3), "ab");
}

TEST(Terminal, PaintsOnlyWhereThereAreColors) {
  EXPECT_EQ(Terminal(0, false).painted("fits", Color::kGreen), "fits");
  EXPECT_EQ(Terminal(0, true).painted("fits", Color::kGreen), "\x1b[32mfits\x1b[0m");
}

TEST(Table, ShowsAllInAPipeWithoutBlanksAtTheEnds) {
  EXPECT_EQ(example().text(Terminal(0, false)),
            "strategy  verdict  reserved  driver calls  share  why\n"
            "caching   fits       1202.5            17    3 %  blocks are kept and cut to what is asked\n"
            "grab-all  OOM           9.0             1  100 %\n");
}

TEST(Table, FitsEveryWidthAndSaysWhatIsLeftOut) {
  for (const size_t width : {45, 50, 60, 80, 100, 200}) {
    const std::string text = example().text(Terminal(width, false));
    EXPECT_LE(widest(text), width) << text;
    EXPECT_NE(text.find("1202.5"), std::string::npos) << "what matters most is always there";
    const bool has_calls = text.find(" 17 ") != std::string::npos;
    EXPECT_EQ(text.find("too narrow for: ") == std::string::npos, has_calls) << text;
  }
  const std::string narrow = example().text(Terminal(45, false));
  EXPECT_NE(narrow.find("too narrow for: share, driver calls;"), std::string::npos) << narrow;
}

TEST(Table, LeavesTheLeastImportantColumnOutFirst) {
  const std::string text = example().text(Terminal(60, false));
  EXPECT_EQ(text.find("driver calls  "), std::string::npos) << text;
  EXPECT_NE(text.find("100 %"), std::string::npos) << text;
}

TEST(Table, APipeOfAWidthLosesNoColumn) {
  FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  setenv("COLUMNS", "45", 1);
  const Terminal pipe(file);
  unsetenv("COLUMNS");
  std::fclose(file);
  const std::string text = example().text(pipe);
  EXPECT_LE(widest(text), 45u) << text;
  EXPECT_EQ(text.find("too narrow"), std::string::npos) << text;
  EXPECT_NE(text.find("\n\nstrategy  driver calls  share\ncaching             17    3 %\n"),
            std::string::npos)
      << text;
}

TEST(Table, WrapsLongTextsBelowThemselves) {
  Table table({{"name"}, {.title = "text", .wraps = true}});
  table.add({"a", "one two three four"});
  table.add({"b", "abcdefghijklmnopqrstuvwxyz"});
  EXPECT_EQ(table.text(Terminal(22, false)),
            "name  text\n"
            "a     one two three\n"
            "      four\n"
            "b     abcdefghijklmnop\n"
            "      qrstuvwxyz\n");
}

TEST(Table, AColumnWithoutTextIsNotShown) {
  Table table({{"name"}, {"empty"}, {.title = "n", .is_number = true}});
  table.add({"a", "", "1"});
  EXPECT_EQ(table.text(Terminal(0, false)), "name  n\na     1\n");
}

TEST(Table, ColorsDoNotMoveColumns) {
  std::string painted = example().text(Terminal(0, true));
  for (size_t at = 0; (at = painted.find("\x1b[", at)) != std::string::npos;) {
    painted.erase(at, painted.find('m', at) + 1 - at);
  }
  EXPECT_EQ(painted, example().text(Terminal(0, false)));
}

TEST(Progress, SaysHowFastAndHowLongStill) {
  EXPECT_EQ(progress_line({.done = 5, .total = 20, .seconds = 2, .unit = "runs", .doing = "unet"}, 0),
            "[#####...............] 5/20 runs, 2.5 runs/s, 6 s left: unet");
  EXPECT_EQ(progress_line({.done = 3e6, .total = 6e6, .seconds = 90, .unit = "events", .doing = ""}, 0),
            "[##########..........] 3.0 M/6.0 M events, 33.3 k events/s, 1 min 30 s left");
  EXPECT_EQ(progress_line({.done = 25, .total = 100, .seconds = 2, .unit = "%", .doing = "reading a"}, 0),
            "[#####...............] 25 %, 12 %/s, 6 s left: reading a");
}

TEST(Progress, PromisesNothingBeforeAnythingIsDone) {
  EXPECT_EQ(progress_line({.done = 0, .total = 20, .seconds = 2, .unit = "runs", .doing = "unet"}, 0),
            "[....................] 0/20 runs: unet");
  EXPECT_EQ(progress_line({.done = 3, .total = 0, .seconds = 2, .unit = "batches", .doing = "batch 64"}, 0),
            "3 batches in 2 s: batch 64");
  EXPECT_EQ(progress_line({.done = 0, .total = 0, .seconds = 2, .unit = "", .doing = "tracing a.py:f"}, 0),
            "2 s: tracing a.py:f");
}

TEST(Progress, FitsTheTerminal) {
  const ProgressState state{.done = 5, .total = 20, .seconds = 2, .unit = "runs", .doing = "a long name"};
  for (const size_t width : {20, 40, 60}) EXPECT_LE(progress_line(state, width).size(), width);
}

}  // namespace
}  // namespace headroom
