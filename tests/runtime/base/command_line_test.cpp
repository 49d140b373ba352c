#include "runtime/base/command_line.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace headroom {
namespace {

// What a shell makes of the text: one word a line.
std::string words_in_shell(const std::string& text) {
  FILE* pipe = popen(("bash -c 'printf \"%s|\" \"$@\"' bash " + text).c_str(), "r");
  std::array<char, 256> chunk{};
  std::string out;
  while (fgets(chunk.data(), chunk.size(), pipe) != nullptr) out += chunk.data();
  pclose(pipe);
  return out;
}

TEST(CommandLine, PlainWordsStayAsTheyAre) {
  EXPECT_EQ(
      command_line("train_mnist", std::vector<std::string>{"--place", "dense=/GPU:1,a=/GPU:0", "1.5GiB"}),
      "train_mnist --place dense=/GPU:1,a=/GPU:0 1.5GiB");
}

TEST(CommandLine, AShellTakesEveryWordBackAsItWas) {
  const std::vector<std::string> words = {"a b", "it's", "$HOME", "*",  "",    "`id`",
                                          "a;b", "#",    "~",     "!x", "a\\b"};
  std::string expected;
  for (const std::string& word : words) expected += word + "|";
  EXPECT_EQ(words_in_shell(command_line("", words)), expected);
}

TEST(CommandLine, ATerminalGetsNoControlCharacters) {
  EXPECT_EQ(shell_word("a\x1b[2Jb'\n"), "$'a\\x1b[2Jb\\'\\x0a'");
}

}  // namespace
}  // namespace headroom
