#include "runtime/base/suggest.h"

#include <gtest/gtest.h>

#include <array>

namespace headroom {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"allow-growth", "direct", "grab-all", "hard-limit"};

TEST(EditDistance, CountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("direct", "direct"), 0);
  EXPECT_EQ(edit_distance("direct", "drect"), 1);    // left out
  EXPECT_EQ(edit_distance("direct", "dirrect"), 1);  // one too many
  EXPECT_EQ(edit_distance("direct", "dirext"), 1);   // wrong key
  EXPECT_EQ(edit_distance("direct", "idrect"), 1);   // swapped neighbours
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

TEST(ListWithSuggestion, ListsAllAndAsksOnlyWhenOneIsNear) {
  EXPECT_EQ(list_with_suggestion("hard-limt", kWords),
            "allow-growth, direct, grab-all, hard-limit; did you mean 'hard-limit'?");
  EXPECT_EQ(list_with_suggestion("zzz", kWords), "allow-growth, direct, grab-all, hard-limit");
}

}  // namespace
}  // namespace headroom
