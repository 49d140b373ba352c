#include "base/edge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace headroom {
namespace {

using Fits = std::function<bool(int64_t)>;

int64_t largest_in(int64_t end, const Fits& fits) {
  SearchWork work;
  return EdgeSearch(work, [&](int64_t n) { return EdgeTrial{fits(n)}; }).largest(end).fitting;
}

TEST(EdgeSearch, FindsTheEdgeOfWhatIsMonotonic) {
  for (int64_t edge : {0, 1, 2, 3, 7, 8, 9, 100, 999, 1000}) {
    SearchWork work;
    EXPECT_EQ(largest_in(1000, [&](int64_t n) { return n <= edge; }), edge);
    EdgeSearch above(work, [&](int64_t n) { return EdgeTrial{n >= edge}; });
    EXPECT_EQ(above.above(-1, 1000)->fitting, edge);
    EXPECT_EQ(above.next_to(1000, 0, 2000)->fitting, edge);
    EXPECT_EQ(above.next_to(-1, -1, 2000)->fitting, edge);
    EXPECT_EQ(above.between(1000, -1).failing, edge - 1);
    EXPECT_TRUE(above.between(1000, -1).is_closed);
  }
  SearchWork work;
  EXPECT_FALSE(EdgeSearch(work, [](int64_t) { return EdgeTrial{}; }).above(0, 1000));
}

TEST(EdgeSearch, TriesOnlyWholeUnits) {
  SearchWork work;
  EdgeSearch search(
      work,
      [](int64_t n) {
        EXPECT_EQ(n % 512, 7);
        return EdgeTrial{n >= 20 * 512};
      },
      512);
  EXPECT_EQ(search.next_to(100 * 512 + 7, 7, 1 << 20)->fitting, 20 * 512 + 7);
  EXPECT_EQ(search.above(7, 1 << 20)->fitting, 20 * 512 + 7);
}

// Memory may shrink again with a larger batch if another kernel is chosen: up to 40 fits, then 300 to 500.
TEST(EdgeSearch, ContinuesAboveANumberThatDoesNotFit) {
  EXPECT_EQ(largest_in(4096, [](int64_t n) { return n <= 40 || (n >= 300 && n <= 500); }), 500);
}

TEST(EdgeSearch, WhatItFindsFitsHoweverItIsScattered) {
  for (int64_t divisor : {2, 3, 7, 50}) {
    const Fits fits = [&](int64_t n) { return n % divisor == 0 && n <= 3000; };
    const int64_t found = largest_in(4096, fits);
    EXPECT_TRUE(found == 0 || fits(found)) << found;
  }
}

TEST(EdgeSearch, StaysInItsRange) {
  const Fits fits = [](int64_t n) {
    EXPECT_GE(n, 1);
    EXPECT_LE(n, 77);
    return n < 50;
  };
  EXPECT_EQ(largest_in(77, fits), 49);
  EXPECT_EQ(largest_in(1, [](int64_t n) { return n == 1; }), 1);
}

TEST(EdgeSearch, TheEdgeBelowHasNoFailingSampleAboveIt) {
  // 1000 to 600 fits, 600 to 400 does not, and below that it does: an island that a user should not rely on.
  SearchWork work;
  EdgeSearch search(work, [](int64_t n) { return EdgeTrial{n >= 600 || (n >= 100 && n <= 400)}; });
  EXPECT_EQ(search.next_to(1000, 0, 2000)->fitting, 600);
}

TEST(EdgeSearch, MakesNoTrialWhoseResultIsKnown) {
  SearchWork work;
  int64_t made = 0;
  EdgeSearch search(work, [&](int64_t n) {
    ++made;
    EdgeTrial trial{n >= 5000};
    if (n >= 5010) trial.same_from = 5010;
    return trial;
  });
  EXPECT_TRUE(search.fits(1'000'000));
  EXPECT_EQ(search.between(1'000'000, 4900).fitting, 5000);
  EXPECT_LE(made, 1 + 7) << "of 20 trials those below 5010";
}

TEST(EdgeSearch, LittleWorkGoesToTheGuessAndMuchFindsTheEdge) {
  for (const int64_t trials : {int64_t{2}, int64_t{5}, SearchWork::kTrials}) {
    SearchWork work{.left = trials};
    int64_t made = 0;
    EdgeSearch search(work, [&](int64_t n) {
      ++made;
      return EdgeTrial{.fits = n >= 5000, .guess = 5010};  // 5010 are taken where there are as many
    });
    search.add(1'000'000, {.fits = true, .guess = 5010});
    const Edge edge = search.between(1'000'000, 0);
    EXPECT_LT(edge.failing, 5000);
    EXPECT_GE(edge.fitting, 5000);
    EXPECT_LE(edge.fitting, work.is_long ? 5010 : 5000);
    EXPECT_EQ(edge.is_closed, !work.is_long);
    EXPECT_LE(made, trials);
  }
}

TEST(EdgeSearch, PlaysNoMoreEventsForALongerTrace) {
  EXPECT_FALSE(SearchWork{.each = 60'000}.is_long);
  EXPECT_TRUE(SearchWork{.each = 1'000'000}.is_long);
  EXPECT_TRUE(SearchWork{.each = 100'000'000}.is_spent());
}

// Each search ends after as many trials as its work allows, with a number that it has seen fit.
TEST(EdgeSearch, EndsWhereTheWorkIsSpent) {
  using Search = std::function<std::optional<Edge>(EdgeSearch&)>;
  const int64_t most = int64_t{1} << 40;
  const Search searches[] = {[&](EdgeSearch& search) { return search.between(most, 0); },
                             [&](EdgeSearch& search) { return search.above(0, most); },
                             [&](EdgeSearch& search) { return search.next_to(most, 0, most); },
                             [&](EdgeSearch& search) { return search.next_to(1, 0, most); },
                             [&](EdgeSearch& search) { return search.highest(1, most); },
                             [&](EdgeSearch& search) { return search.largest(most); }};
  for (const Search& run : searches) {
    for (const bool is_long : {true, false}) {
      for (const int64_t trials : {1, 3, 10, 30}) {
        SearchWork work{.left = trials, .is_long = is_long};
        int64_t made = 0;
        EdgeSearch search(work, [&](int64_t n) {
          ++made;
          return EdgeTrial{n % 1'000'003 < 500'000 || n == most};
        });
        const std::optional<Edge> edge = run(search);
        EXPECT_LE(made, trials + 2);
        ASSERT_TRUE(edge);
        EXPECT_TRUE(edge->fitting <= 1 || edge->fitting == most || edge->fitting % 1'000'003 < 500'000);
      }
    }
  }
}

TEST(EdgeSearch, FollowsALineToTheHighestNumber) {
  for (const int64_t edge : {1, 2, 40, 999, 1000}) {
    SearchWork work{.each = kMaxSearchedEvents / 32};
    int64_t made = 0, best = 1;
    EdgeSearch search(work, [&](int64_t n) {
      ++made;
      if (n <= edge) best = std::max(best, n);
      return EdgeTrial{.fits = n <= edge, .guess = n <= edge ? n + (edge - n) * 9 / 10 + 1 : best + 1};
    });
    const Edge found = search.highest(1, 1000);
    EXPECT_EQ(found.fitting, edge);
    EXPECT_TRUE(found.is_closed);
    EXPECT_LE(made, 8);
  }
}

}  // namespace
}  // namespace headroom
