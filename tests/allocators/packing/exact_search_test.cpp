// Tests that the search says "does not fit" only for items that do not fit, in any order, and gives valid
// places.
#include "allocators/packing/exact_search.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/random.h"

namespace headroom::packing {
namespace {

constexpr SearchOrder kOrders[] = {SearchOrder::kLife, SearchOrder::kCrowding, SearchOrder::kCrowdingLife,
                                   SearchOrder::kConflictsLife, SearchOrder::kConflictsArea};

Problem random_problem(uint64_t seed) {
  Problem problem;
  auto draw = [&, i = uint64_t{0}](int below) mutable {
    return static_cast<int>(random_words(seed, 0, i++)[0] % static_cast<uint32_t>(below));
  };
  const int count = 8 + draw(10);
  for (int i = 0; i < count; ++i) {
    const int first = draw(12), steps = 1 + draw(8);
    problem.items.push_back({1 + draw(12), first, first + steps, 1, steps});
  }
  compress_columns(problem);
  return problem;
}

// All ways agree on the least capacity, so each of them is complete; one that cuts off too much would need
// more.
TEST(ExactSearch, AllOrdersAgreeOnTheLeastCapacity) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Problem problem = random_problem(seed);
    ExactSearch search(problem);
    std::vector<int64_t> least;
    for (const SearchOrder order : kOrders) {
      for (const bool is_thorough : {false, true}) {
        int64_t capacity = problem.lower_bound();
        const SearchSettings settings{order, is_thorough, 1 << 20, 1 << 28};
        while (search.fits_below(capacity, settings) == ExactSearch::Answer::kDoesNotFit) ++capacity;
        ASSERT_EQ(search.fits_below(capacity, settings), ExactSearch::Answer::kFits);
        least.push_back(capacity);
        const std::vector<int64_t>& offsets = search.offsets();
        for (size_t a = 0; a < offsets.size(); ++a) {
          EXPECT_LE(offsets[a] + problem.items[a].size, capacity);
          for (size_t b = 0; b < a; ++b) {
            EXPECT_FALSE(problem.items[a].meets(problem.items[b]) &&
                         offsets[a] < offsets[b] + problem.items[b].size &&
                         offsets[b] < offsets[a] + problem.items[a].size);
          }
        }
      }
    }
    EXPECT_EQ(std::vector<int64_t>(least.size(), least[0]), least) << "seed " << seed;
  }
}

TEST(ExactSearch, IsUndecidedWhenItHasNoTime) {
  const Problem problem = random_problem(1);
  ExactSearch search(problem);
  EXPECT_EQ(search.fits_below(1000, {SearchOrder::kLife, false, 1, 1 << 20}),
            ExactSearch::Answer::kUndecided);
  EXPECT_EQ(search.fits_below(1000, {SearchOrder::kLife, false, 1000, 1}), ExactSearch::Answer::kUndecided);
}

TEST(ExactSearch, ColumnsAreTheStepsAtWhichTheLiveSetIsMaximal) {
  Problem problem;
  for (const auto& [first, end] : {std::pair{0, 30}, {0, 10}, {5, 10}, {10, 20}, {12, 15}, {25, 30}}) {
    problem.items.push_back({1, first, end, 1, end - first});
  }
  compress_columns(problem);
  EXPECT_EQ(problem.columns, 3);
  EXPECT_EQ(problem.items[0].columns(), 3);
  EXPECT_EQ(problem.items[4].first, 1);
  EXPECT_EQ(problem.items[5].first, 2);
  EXPECT_EQ(problem.live(), (std::vector<int64_t>{3, 3, 2}));
}

}  // namespace
}  // namespace headroom::packing
