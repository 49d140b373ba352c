#include "tools/workload/search.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom {
namespace {

TEST(Search, FindsTheEdgeOfWhatIsMonotonic) {
  for (int64_t edge : {0, 1, 2, 3, 7, 8, 9, 100, 999, 1000}) {
    const Fits fits = [&](int64_t n) { return n <= edge; };
    EXPECT_EQ(largest_in(1000, fits), edge);
    EXPECT_EQ(least_below(0, -1000, [&](int64_t n) { return n >= -edge; }), -edge);
    EXPECT_EQ(first_above(-1, 1000, [&](int64_t n) { return n >= edge; }), edge);
  }
  EXPECT_EQ(first_above(0, 1000, [](int64_t) { return false; }), std::nullopt);
}

// What grows with the batch may shrink again where another kernel is chosen: up to 40 fits, then 300 to 500.
TEST(Search, ContinuesAboveANumberThatDoesNotFit) {
  const Fits fits = [](int64_t n) { return n <= 40 || (n >= 300 && n <= 500); };
  EXPECT_EQ(largest_in(4096, fits), 500);
}

TEST(Search, WhatItFindsFitsHoweverItIsScattered) {
  for (int64_t divisor : {2, 3, 7, 50}) {
    const Fits fits = [&](int64_t n) { return n % divisor == 0 && n <= 3000; };
    const int64_t found = largest_in(4096, fits);
    EXPECT_TRUE(found == 0 || fits(found)) << found;
  }
}

TEST(Search, StaysInItsRange) {
  const Fits fits = [](int64_t n) {
    EXPECT_GE(n, 1);
    EXPECT_LE(n, 77);
    return n < 50;
  };
  EXPECT_EQ(largest_in(77, fits), 49);
  EXPECT_EQ(largest_in(1, [](int64_t n) { return n == 1; }), 1);
}

TEST(Search, TheLeastBelowHasNoFailingSampleAboveIt) {
  // 1000 to 600 fits, 600 to 400 does not, and below that it does: an island that nobody should rely on.
  const Fits fits = [](int64_t n) { return n >= 600 || n <= 400; };
  EXPECT_EQ(least_below(1000, 0, fits), 600);
}

}  // namespace
}  // namespace headroom
