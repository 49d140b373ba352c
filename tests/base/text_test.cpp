#include "base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {
namespace {

// Returns the words that a shell reads from the text, one per line.
std::string words_in_shell(const std::string& text) {
  FILE* pipe = popen(("bash <<'END_OF_WORDS'\nprintf '%s|' " + text + "\nEND_OF_WORDS\n").c_str(), "r");
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

TEST(CommandLine, ItsWordsAreFoundAgain) {
  const std::vector<std::string> words = {"run",   "a b",        "it's",     "$HOME",
                                          "",      "a\\b",       "tab\t'\\", "--lr=1e-4"};
  EXPECT_EQ(shell_words(command_line("python", words)).size(), words.size() + 1);
  for (const std::string& word : words) EXPECT_EQ(shell_words(shell_word(word)), std::vector{word});
  EXPECT_TRUE(shell_words("").empty());
}

TEST(CommandLine, ATerminalGetsNoControlCharacters) {
  EXPECT_EQ(shell_word("a\x1b[2Jb'\n"), "$'a\\x1b[2Jb\\'\\x0a'");
}

TEST(Printable, IsOneLineOfValidUtf8WhateverTheBytes) {
  EXPECT_EQ(printable("conv1/relu \xe2\x82\xac"), "conv1/relu \xe2\x82\xac");
  EXPECT_EQ(printable("a\nb\tc"), "a b c");
  EXPECT_EQ(printable(std::string_view("python\0train.py\0", 16)), "python train.py ");
  EXPECT_EQ(printable("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");  // no UTF-8, and a character cut off
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b"
            "2J");  // a control sequence in UTF-8
  EXPECT_EQ(printable("\xed\xa0\x80\xc0\xaf"),
            "\\xed\\xa0\\x80\\xc0\\xaf");  // a surrogate, an overlong slash
}

// Marks that turn the direction of text, characters without a width, tags: what shows one name as another.
constexpr std::string_view kHiddenCharacters[] = {
    "\xe2\x80\xae", "\xe2\x81\xa6", "\xd8\x9c", "\xe2\x80\x8b",     "\xef\xbb\xbf", "\xc2\xad",
    "\xe2\x80\xa8", "\xc2\x9b",     "\xc2\x85", "\xf3\xa0\x81\x81", "\x7f"};

TEST(Printable, ShowsWhatATerminalWouldHide) {
  EXPECT_EQ(printable("safe\xe2\x80\xae"
                      "gnp.exe"),
            "safe\\xe2\\x80\\xaegnp.exe");
  for (const std::string_view hidden : kHiddenCharacters) {
    const std::string name = "a" + std::string(hidden) + "b";
    EXPECT_EQ(printable(name).find(hidden), std::string::npos) << printable(name);
    EXPECT_EQ(shell_word(name).find(hidden), std::string::npos) << printable(name);
    EXPECT_EQ(words_in_shell(shell_word(name)), name + "|") << printable(name);
    const std::string json = "{\"" + name + "\":\"" + name + "\"}";
    EXPECT_EQ(escaped_json(json).find(hidden), std::string::npos) << printable(name);
    EXPECT_EQ(nlohmann::json::parse(escaped_json(json)), nlohmann::json::parse(json)) << printable(name);
  }
  EXPECT_EQ(escaped_json("{\"\xd0\xb8\":1}\n"), "{\"\xd0\xb8\":1}\n");
}

// Whatever the bytes, the results hold nothing that a terminal obeys or hides, and a shell gets the bytes
// back.
TEST(Printable, HoldsForRandomBytes) {
  std::mt19937 engine(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t parts = 1 + engine() % 6; parts > 0; --parts) {
      if (engine() % 2 == 0) {
        bytes += kHiddenCharacters[engine() % std::size(kHiddenCharacters)];
      } else {
        bytes += static_cast<char>(1 + engine() % 255);
      }
    }
    const std::string json = json_text(nlohmann::json(bytes));
    for (const std::string& text : {printable(bytes), shell_word(bytes), json}) {
      ASSERT_EQ(printable(text), text) << printable(bytes);
    }
    if (round % 50 == 0) {
      ASSERT_EQ(words_in_shell(shell_word(bytes)), bytes + "|") << printable(bytes);
    }
  }
}

TEST(Printable, ALongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("ab\xe2\x82\xac"
                      "c",
                      3),
            "ab\xe2\x82\xac...");
}

constexpr std::array<std::string_view, 4> kWords = {"allow-growth", "direct", "grab-all", "hard-limit"};

TEST(EditDistance, CountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("direct", "direct"), 0);
  EXPECT_EQ(edit_distance("direct", "drect"), 1);    // left out
  EXPECT_EQ(edit_distance("direct", "dirrect"), 1);  // one too many
  EXPECT_EQ(edit_distance("direct", "dirext"), 1);   // wrong key
  EXPECT_EQ(edit_distance("direct", "idrect"), 1);   // swapped neighbors
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(SuggestNearest, FindsTheSlippedWord) {
  EXPECT_EQ(suggest_nearest("alow-growth", kWords), "allow-growth");
  EXPECT_EQ(suggest_nearest("grab_all", kWords), "grab-all");
  EXPECT_EQ(suggest_nearest("DIRECT", kWords), "direct");
}

TEST(SuggestNearest, FindsTheWordThatContainsIt) {
  EXPECT_EQ(suggest_nearest("growth", kWords), "allow-growth");
  EXPECT_EQ(suggest_nearest("gro", kWords), "allow-growth");
  EXPECT_EQ(suggest_nearest("li", kWords), "");
}

TEST(SuggestNearest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(suggest_nearest("buddy", kWords), "");
  EXPECT_EQ(suggest_nearest("", kWords), "");
  EXPECT_EQ(suggest_nearest("direct", {}), "");
}

TEST(ListWithSuggestion, ListsAllAndSuggestsOnlyANearOne) {
  EXPECT_EQ(list_with_suggestion("hard-limt", kWords),
            "allow-growth, direct, grab-all, hard-limit; did you mean 'hard-limit'?");
  EXPECT_EQ(list_with_suggestion("zzz", kWords), "allow-growth, direct, grab-all, hard-limit");
}

}  // namespace
}  // namespace headroom
