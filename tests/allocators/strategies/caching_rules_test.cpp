// PyTorch's sizes, one by one.
#include "allocators/strategies/caching_rules.h"

#include <gtest/gtest.h>

#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

TEST(CachingRules, BlocksAreMultiplesOf512Bytes) {
  const CachingRules rules;
  EXPECT_EQ(rules.block_bytes(1), 512);
  EXPECT_EQ(rules.block_bytes(512), 512);
  EXPECT_EQ(rules.block_bytes(513), 1024);
  EXPECT_EQ(rules.block_bytes(10 * kMiB + 1), 10 * kMiB + 512);
}

TEST(CachingRules, SegmentsAre2MiBOr20MiBOrAMultipleOf2MiB) {
  EXPECT_EQ(CachingRules{}.segment_bytes(512), 2 * kMiB);
  EXPECT_EQ(CachingRules{}.segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(CachingRules{}.segment_bytes(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(CachingRules{}.segment_bytes(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(CachingRules{}.segment_bytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(CachingRules{}.segment_bytes(10 * kMiB + 512), 12 * kMiB);
}

TEST(CachingRules, ASmallBlockIsCutFrom512BytesOnALargeOneAbove1MiB) {
  const CachingRules rules;
  EXPECT_TRUE(rules.cuts(1024, 512));
  EXPECT_FALSE(rules.cuts(512, 512));
  EXPECT_FALSE(rules.cuts(20 * kMiB, 19 * kMiB));
  EXPECT_TRUE(rules.cuts(20 * kMiB, 19 * kMiB - 512));
}

TEST(CachingRules, ASplitLimitKeepsLargeBlocksWholeAndForTheirLike) {
  const CachingRules rules{.max_split_bytes = 100 * kMiB};
  EXPECT_FALSE(rules.cuts(180 * kMiB, 100 * kMiB));
  EXPECT_TRUE(rules.cuts(99 * kMiB, 50 * kMiB));
  EXPECT_TRUE(rules.serves(100 * kMiB - 512, 99 * kMiB));
  EXPECT_FALSE(rules.serves(100 * kMiB, 99 * kMiB));
  EXPECT_TRUE(rules.serves(120 * kMiB - 512, 100 * kMiB));
  EXPECT_FALSE(rules.serves(120 * kMiB, 100 * kMiB));
  const CachingRules wider{.max_split_bytes = 100 * kMiB, .max_non_split_rounding_bytes = 50 * kMiB};
  EXPECT_TRUE(wider.serves(120 * kMiB, 100 * kMiB));
}

TEST(CachingRules, PowersOfTwoAreDividedEvenly) {
  EXPECT_EQ(round_up_power2(1200, 4), 1280);  // the example in PyTorch's documentation
  EXPECT_EQ(round_up_power2(1024, 4), 1024);
  EXPECT_EQ(round_up_power2(1025, 4), 1280);
  EXPECT_EQ(round_up_power2(2047, 4), 2048);
  EXPECT_EQ(round_up_power2(1025, 1), 2048);
}

TEST(CachingRules, OnlySizesAboveDivisionsTimes512AreRoundedToThem) {
  CachingRules rules;
  rules.power2_divisions = parse_power2_divisions("4", "roundup_power2");
  EXPECT_EQ(rules.block_bytes(1200), 1536);
  EXPECT_EQ(rules.block_bytes(2048), 2048);
  EXPECT_EQ(rules.block_bytes(2100), 2560);
  EXPECT_EQ(rules.block_bytes(65 * kMiB), 80 * kMiB);
}

TEST(CachingRules, DivisionsMayDifferBySize) {
  CachingRules rules;
  rules.power2_divisions = parse_power2_divisions("[256:1,512:2,1024:4,>:8]", "roundup_power2");
  EXPECT_EQ(rules.block_bytes(130 * kMiB), 130 * kMiB);  // below 256 MiB the first number holds: off
  EXPECT_EQ(rules.block_bytes(300 * kMiB), 300 * kMiB);
  EXPECT_EQ(rules.block_bytes(600 * kMiB), 768 * kMiB);    // 512 in two
  EXPECT_EQ(rules.block_bytes(1100 * kMiB), 1280 * kMiB);  // 1024 in four
  EXPECT_EQ(rules.block_bytes(2100 * kMiB), 2304 * kMiB);  // 2048 in eight
  EXPECT_EQ(rules.block_bytes(90 * kGiB), 96 * kGiB);      // above the last size as there
}

TEST(CachingRules, EveryRuleIsAnOptionOfTheStrategy) {
  const StrategySettings settings = parse_strategy(
      "caching:max_split=128MiB,roundup_power2=[1:4,>:2],gc=0.8,max_non_split_rounding=30MiB,large_segment="
      "64MiB+limit=1GiB");
  const CachingRules rules = caching_rules(settings.options);
  EXPECT_EQ(rules.max_split_bytes, 128 * kMiB);
  EXPECT_EQ(rules.max_non_split_rounding_bytes, 30 * kMiB);
  EXPECT_EQ(rules.segment_bytes(2 * kMiB), 64 * kMiB);
  EXPECT_EQ(rules.segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(rules.segment_bytes(30 * kMiB), 30 * kMiB);
  EXPECT_EQ(rules.gc_share, 0.8);
  EXPECT_EQ(rules.power2_divisions.value()[0], 4);
  EXPECT_EQ(rules.power2_divisions.value()[1], 2);
  EXPECT_EQ(settings.limit_bytes, kGiB);
}

TEST(CachingRules, ASplitLimitBelowASegmentOf20MiBIsRefused) {
  EXPECT_THROW(caching_rules(parse_strategy("caching:max_split=19MiB").options), InvalidArgument);
  EXPECT_EQ(caching_rules(parse_strategy("caching:max_split=20MiB").options).max_split_bytes, 20 * kMiB);
}

TEST(CachingRules, ALargeSegmentHoldsTheBlocksThatItIsFor) {
  for (const char* size : {"8MiB", "21MiB", "0B"}) {
    EXPECT_THROW(caching_rules(parse_strategy("caching:large_segment=" + std::string(size)).options),
                 InvalidArgument)
        << size;
  }
}

TEST(CachingRules, DivisionsThatAreNoPowersOfTwoAreRefused) {
  for (const char* text : {"", "3", "-4", "4x", "[", "[]", "[256:3]", "[300:4]", "[256:4,]", "[256]", "[:4]",
                           "[256:4", "99999999999999999999"}) {
    EXPECT_THROW(parse_power2_divisions(text, "roundup_power2"), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace headroom
