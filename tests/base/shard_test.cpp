#include "base/shard.h"

#include <gtest/gtest.h>

#include <limits>

namespace headroom {
namespace {

TEST(Shards, CoverEveryElementOnceInAlignedRuns) {
  for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{1000},
                                 int64_t{36864}, std::numeric_limits<int64_t>::max() / 4}) {
    for (const int of : {1, 2, 3, 7, 8, 1000}) {
      int64_t next = 0;
      for (int index = 0; index < of; ++index) {
        const Shard shard{index, of};
        EXPECT_EQ(shard.begin(elements), next);
        EXPECT_TRUE(next == elements || next % kShardAlignment == 0);
        next = shard.end(elements);
        EXPECT_LE(shard.size(elements), elements / of + kShardAlignment);
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(Shards, OfOneAreTheWhole) {
  EXPECT_TRUE(Shard().is_whole());
  EXPECT_EQ(Shard().begin(65), 0);
  EXPECT_EQ(Shard().end(65), 65);
}

}  // namespace
}  // namespace headroom
