// Words are found anywhere in a text, even if it is read in several parts at once.
#include "tools/explain/word_scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::explain {
namespace {

struct Found {
  size_t end, word, begin;
  auto operator<=>(const Found&) const = default;
};
bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// Each word looked for at each place of the text, of whose runs of blanks one is left.
std::vector<Found> expected(std::string_view text, const std::vector<std::string_view>& words) {
  std::string short_text;
  std::vector<size_t> first, last;  // where a character of it, or a run of blanks, lies in `text`
  for (size_t i = 0; i < text.size(); ++i) {
    const bool repeats = i > 0 && is_blank(text[i]) && is_blank(text[i - 1]);
    if (repeats) {
      last.back() = i;
    } else {
      short_text.push_back(is_blank(text[i]) ? ' ' : text[i]);
      first.push_back(i);
      last.push_back(i);
    }
  }
  std::vector<Found> all;
  for (size_t word = 0; word < words.size(); ++word) {
    for (size_t at = short_text.find(words[word]); at != std::string::npos;
         at = short_text.find(words[word], at + 1))
      all.push_back({first[at + words[word].size() - 1] + 1, word, last[at]});
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<Found> found_by(const WordScanner& scanner, std::string_view text,
                            const std::vector<std::string_view>& words) {
  std::vector<Found> all;
  scanner.scan(text, [&](size_t word, size_t begin) {
    // The end is not given: it follows the word's characters after its beginning, counting a run of blanks as
    // one.
    size_t end = begin;
    for (size_t i = 0; i < words[word].size(); ++i) {
      if (i > 0 && is_blank(text[end - 1])) {
        while (is_blank(text[end])) ++end;
      }
      ++end;
    }
    if (words[word].size() > 1 && words[word].back() == ' ') {
      while (end > 1 && is_blank(text[end - 2])) --end;
    }
    all.push_back({end, word, begin});
  });
  return all;
}

TEST(WordScannerTest, FindsEachWordOnceAtEveryPlaceOfRandomTexts) {
  const std::vector<std::string_view> words = {"a", "ab", "b a", " ab", "ab ", "c", "ca b", "bab", "a b a"};
  const WordScanner scanner(words);
  std::mt19937 engine(3);
  for (int i = 0; i < 60; ++i) {
    // Short ones are read in one part, the others in four.
    std::string text(i % 3 == 0 ? 50 + engine() % 50 : 4096 + engine() % 40, ' ');
    for (char& c : text) c = "aabbc \n\t"[engine() % 8];
    std::vector<Found> found = found_by(scanner, text, words);
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const Found& a, const Found& b) { return a.end < b.end; }));
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected(text, words)) << "text " << i;
  }
}

TEST(WordScannerTest, FindsAWordBehindARunOfBlanksThatPassesFromOnePartToTheNext) {
  const std::vector<std::string_view> words = {" word", "word", "one word"};
  const WordScanner scanner(words);
  const std::string begin = "one", run(40, ' ');
  for (size_t place = 980; place < 1060; ++place) {
    std::string text(4200, '.');
    text.replace(place, begin.size(), begin);
    text.replace(place + begin.size(), run.size(), run);
    text.replace(place + begin.size() + run.size(), 4, "word");
    std::vector<Found> found = found_by(scanner, text, words);
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, expected(text, words)) << "at " << place;
  }
}

TEST(WordScannerTest, ReadsATextOfBlanksAlone) {
  const std::vector<std::string_view> words = {"a ", " b"};
  const WordScanner scanner(words);
  EXPECT_TRUE(found_by(scanner, std::string(10'000, ' '), words).empty());
}

}  // namespace
}  // namespace headroom::explain
