// Rules are data: what is no rule is refused with its line, and rules of one's own count before the others.
#include "tools/explain/rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "tools/explain/explanation.h"
#include "tools/explain/log_reader.h"

namespace headroom::explain {
namespace {

std::string error_of(std::string_view text) {
  try {
    const Rules rules(RulesFile{"own.txt", text});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Rules, WhatIsNoRuleIsRefusedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"allocation", "own.txt:1: expected 'words: text', found 'allocation'"},
      {"# a comment\n\nalocation: no room", "own.txt:3: unknown word 'alocation'; known: "},
      {"alocation: no room", "did you mean 'allocation'?"},
      {"stated-cause: no room", "own.txt:1: unknown word 'stated-cause'"},
      {"allocation: ", "own.txt:1: the text is empty"},
      {"allocation: \"\"", "own.txt:1: the text is empty"},
      {"allocation: no room\x01", "own.txt:1: the text has characters that are no text"},
      {"allocation: no room \xff", "own.txt:1: the text has characters that are no text"},
      {"allocation pitorch: no room", "own.txt:1: no framework is named 'pitorch'"},
      {"allocation since: no room", "own.txt:1: a name is missing before the colon"},
      {"allocation since two: no room", "own.txt:1: 'two' is no number"},
      {"allocation since 2.x: no room", "own.txt:1: 'x' is no number"},
      {"allocation: {requested} is too much", "has fewer than 2 characters before its first hole"},
      {"allocation: no  room", "own.txt:1: 'no  room' has two blanks in a row"},
      {"allocation: no room for {requested", "lacks a '}'"},
      {"allocation: no room for {reqested}", "has no field 'reqested'; known: "},
      {"allocation: no room for {requested~}", "{name~} reads a text only"},
      {"allocation: no room on {strategy}", "a text is read by {name~}"},
      {"allocation: no room" + std::string(1000, 'x'), "own.txt:1: a line has more than 1000 bytes"},
      {"verdict allocation exausted high: full", "own.txt:1: no cause is named 'exausted'"},
      {"verdict allocation exhausted certain: full", "own.txt:1: unknown word 'certain'; known: high"},
      {"verdict allocation exhausted high twice: full", "own.txt:1: 'twice' means nothing here"},
      {"verdict allocation exhausted high: full\n  why: so", "own.txt:2: 'why' means nothing here"},
      {"  why: so", "own.txt:1: 'why' means nothing here"},
      {"advice exhausted unless no_setting: buy\n  why: so",
       "own.txt:1: no setting, phase, fact or framework is named"},
      {"advice exhausted phase no_phase: buy\n  why: so", "framework is named 'no_phase'"},
      {"fact bound: pytorch and no_fact", "framework is named 'no_fact'"},
      {"never no_fact: buy", "framework is named 'no_fact'"},
      {"advice exhausted: {set --batch 1", "own.txt:1: '{set --batch 1' lacks a '}'"},
      {"advice exhausted: buy", "own.txt:1: the advice has no line '  why: ...'"},
      {"code exhausted: paste\n# no line", "own.txt:1: the code has no line '  line: ...'"},
      {"code exhausted: paste\n  why: so", "own.txt:2: 'why' means nothing here"},
      {"framework pytorch: Mine", "own.txt:1: a second framework 'pytorch'"},
      {"vendor amd: one = other", "own.txt:1: expected 'words => words'"},
      {"fault x: bad", "own.txt:1: 'x' is no number"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(expected), std::string::npos) << text << "\n" << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Rules, MoreThanAReaderOfLogsLooksForAreRefused) {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += "allocation: " + std::to_string(i) + " is a message\n";
  EXPECT_NE(error_of(text).find("too many words"), std::string::npos) << error_of(text);
}

TEST(Rules, ThoseOfOnesOwnCountBeforeTheOthers) {
  const Rules rules(RulesFile{"own.txt",
                              "framework ourtrainer python: Our Trainer\n"
                              "  start: ourtrain CONFIG\n"
                              "limit ourtrainer: quota exceeded: {requested} over {limit}\n"
                              "verdict limit limit high: the team's quota is used up\n"
                              "advice limit ourtrainer: quota --raise {run}\n"
                              "  why: ask for more\n"
                              "advice exhausted pytorch: ours first\n"
                              "  why: we know better\n"
                              "=== example\ncause: limit\n---\nquota exceeded\n"});
  const Explanation own = explain(read_log("Error: quota exceeded: 3 GiB over 2 GiB\n", rules));
  EXPECT_EQ(own.judgment.cause, Cause::kLimit);
  EXPECT_EQ(own.judgment.reason, "The team's quota is used up; 3.00 GiB were requested.");
  EXPECT_EQ(own.framework, "Our Trainer");
  ASSERT_GE(own.next.size(), 2u);
  EXPECT_EQ(own.next[0].command, "quota --raise ourtrain CONFIG");
  const Explanation known = explain(read_log("CUDA out of memory. Tried to allocate 20.00 MiB", rules));
  EXPECT_EQ(known.next[0].command, "ours first");
}

// Several texts, choices of words, and what any program prints with a capital, too.
TEST(Rules, ARowMayHaveSeveralTexts) {
  const Rules rules(RulesFile{"own.txt",
                              "allocation: no place for {requested} || the {tray|rack} is full\n"
                              "some-memory: gizmos are all taken\n"
                              "mention vllm: our/vllm/fork\n"});
  const auto cause_of = [&](std::string_view log) { return explain(read_log(log, rules)).judgment.cause; };
  for (const char* log :
       {"Error: no place for 3 GiB\n", "Error: the tray is full\n", "Error: the rack is full\n"})
    EXPECT_EQ(cause_of(log), Cause::kExhausted) << log;
  EXPECT_NE(cause_of("Error: Gizmos are all taken\n"), Cause::kNone);
  EXPECT_EQ(cause_of("Error: the shelf is full\n"), Cause::kUnknown);
  const Explanation windows =
      explain(read_log("  File \"C:\\x\\our\\vllm\\fork.py\"\nthe rack is full\n", rules));
  EXPECT_EQ(windows.framework, "vLLM");
}

// A program's own words for a change stand once; steps of every cause name them.
TEST(Rules, AStepNamesAChangeInTheProgramsOwnWords) {
  const Rules rules(RulesFile{"own.txt",
                              "framework ourserver tool serves: Our Server\n"
                              "  start: ourserve MODEL\n"
                              "  share: {set --part 0.5} || part=0.5\n"
                              "  lighter: the small model\n"
                              "mention ourserver: ourserve\n"
                              "background ourserver: ourserve {command~}\n"
                              "advice exhausted|limit ourserver: {share}\n"
                              "  why: leave room\n"
                              "advice exhausted ourserver: {no_such_change}\n"
                              "  why: never\n"});
  const Explanation command =
      explain(read_log("$ ourserve m --part 0.9\nCUDA out of memory. Tried to allocate 20.00 MiB\n", rules));
  EXPECT_EQ(command.next[0].command, "ourserve m --part 0.5");
  const Explanation script =
      explain(read_log("import ourserve\n  File \"a.py\", line 3, in <module>\nCUDA out of memory. Tried to "
                       "allocate 20.00 MiB\n",
                       rules));
  EXPECT_EQ(script.next[0].command, "part=0.5");
}

TEST(Rules, TheDocumentedFileIsOne) {
  const std::string page = read_file(HEADROOM_SOURCE_DIR "/docs/explain.md", 1 << 20);
  const std::string indent = "    ";
  std::string own;
  for (size_t at = page.find(indent + "# What our trainer prints."); page.compare(at, 4, indent) == 0;) {
    const size_t end = page.find('\n', at) + 1;
    own += page.substr(at + indent.size(), end - at - indent.size());
    at = end;
  }
  const Rules rules(RulesFile{"explain.md", own});
  const Explanation explanation = explain(read_log(own.substr(own.find("---\n")), rules));
  EXPECT_EQ(explanation.judgment.reason, "The team's quota is used up; 3.00 GiB were requested.");
  EXPECT_EQ(explanation.framework, "Our Trainer");
  EXPECT_EQ(explanation.next[0].command, "quota --raise ourtrain CONFIG");
}

TEST(Rules, NoMessageIsThereTwice) {
  std::set<std::string_view> patterns;
  for (const Message& message : Rules::built_in().messages())
    EXPECT_TRUE(patterns.insert(message.pattern).second) << message.pattern;
}

// The compiler does not know the names of settings and phases.
TEST(Rules, HaveEverySettingAndPhaseThatCodeAsksFor) {
  std::set<std::string, std::less<>> names;
  for (const Setting& setting : Rules::built_in().settings()) names.emplace(setting.name);
  for (const Setting& phase : Rules::built_in().phases()) names.emplace(phase.name);
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEADROOM_SOURCE_DIR "/tools/explain")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = read_file(entry.path().string(), 1 << 20);
    for (const std::string_view call : {"has_setting(\"", ".in(\""}) {
      for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1), ++count) {
        const size_t begin = at + call.size();
        const std::string name = text.substr(begin, text.find('"', begin) - begin);
        EXPECT_TRUE(names.contains(name)) << entry.path() << ": " << name;
      }
    }
  }
  EXPECT_GT(count, 20u);
}

}  // namespace
}  // namespace headroom::explain
