#include "trace/text_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom {
namespace {

TEST(TextTable, NumbersEachTextOnce) {
  TextTable table;
  std::vector<std::string> texts;
  const auto text_of = [&](int32_t number) -> std::string_view { return texts[static_cast<size_t>(number)]; };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 10'000; ++i) {
      const std::string text = "text " + std::to_string(i);
      const uint32_t hash = TextTable::hash(text);
      EXPECT_EQ(table.find(hash, text, text_of), round == 0 ? TextTable::kNone : i);
      if (round > 0) continue;
      EXPECT_EQ(table.add(hash), i);
      texts.push_back(text);
    }
  }
}

TEST(TextTable, TellsTextsOfOneHashApart) {
  TextTable table;
  std::vector<std::string> texts;
  const auto text_of = [&](int32_t number) -> std::string_view { return texts[static_cast<size_t>(number)]; };
  for (const char* text : {"", "a", "b", "ab"}) {
    EXPECT_EQ(table.find(7, text, text_of), TextTable::kNone);
    table.add(7);
    texts.emplace_back(text);
  }
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(table.find(7, texts[i], text_of), static_cast<int32_t>(i));
}

}  // namespace
}  // namespace headroom
