// Tests the peculiarities of PyTorch's caching allocator, with the figures reported for it on a 6 GiB card.
#include <gtest/gtest.h>

#include <vector>

#include "allocators/strategies/caching_allocator.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

constexpr int64_t floats(int64_t a, int64_t b, int64_t c, int64_t d) {
  return a * b * c * d * 4;
}
constexpr int64_t kSmall = floats(200, 300, 1, 1);
constexpr int64_t k916 = floats(200, 300, 200, 20);   // its segment: 916 MiB
constexpr int64_t k2060 = floats(300, 300, 300, 20);  // 2060 MiB

// The 6 GiB card: the context uses 446 MiB, other processes 931.56.
class CachingOn6Gib : public testing::Test {
 protected:
  int64_t held_mib() { return gpu_.memory().info().process / kMiB; }

  SimulatedGpu gpu_{find_profile("card-6gb")};
  CachingAllocator allocator_{(gpu_.initialize(), gpu_), "caching", std::nullopt, CachingRules{}};
};

TEST_F(CachingOn6Gib, AnySmallTensorTakesASegmentOf2MiB) {
  allocator_.allocate(1);
  EXPECT_EQ(held_mib(), 448);
}

TEST_F(CachingOn6Gib, ALargeTensorTakesASegmentOfItsOwn) {
  allocator_.allocate(k916);
  EXPECT_EQ(held_mib(), 1362);
}

TEST_F(CachingOn6Gib, AReplacedTensorStaysInTheCache) {
  void* x = allocator_.allocate(k916);
  void* y = allocator_.allocate(kSmall);
  allocator_.deallocate(x, k916);
  EXPECT_EQ(held_mib(), 1364);
  allocator_.deallocate(y, kSmall);
}

TEST_F(CachingOn6Gib, ALargerReplacementCannotUseTheCachedBlock) {
  void* x = allocator_.allocate(k916);
  void* y = allocator_.allocate(k2060);
  allocator_.deallocate(x, k916);
  EXPECT_EQ(held_mib(), 3422);
  allocator_.deallocate(y, k2060);
}

TEST_F(CachingOn6Gib, TheSixthTensorThatIsKeptIsOutOfMemoryWithTheReportedNumbers) {
  std::vector<void*> kept;
  try {
    for (int i = 0; i < 6; ++i) kept.push_back(allocator_.allocate(k916));
    FAIL() << "six fit";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(format_bytes(CachingRules{}.segment_bytes(error.facts().requested)), "916.00 MiB");
    EXPECT_EQ(format_bytes(error.facts().allocated), "4.47 GiB");
    EXPECT_EQ(format_bytes(error.facts().device_free), "186.44 MiB");
    EXPECT_EQ(format_bytes(error.facts().reserved), "4.47 GiB");
    EXPECT_EQ(format_bytes(error.facts().device_total), "6.00 GiB");
  }
  EXPECT_EQ(kept.size(), 5u);
}

TEST_F(CachingOn6Gib, ReassigningSixTimesNeedsTwoBlocks) {
  void* x = nullptr;
  for (int i = 0; i < 6; ++i) {
    void* next = allocator_.allocate(k916);
    allocator_.deallocate(x, k916);
    x = next;
  }
  EXPECT_EQ(held_mib(), 2278);
  EXPECT_EQ(allocator_.statistics().driver_allocations, 2);
}

TEST_F(CachingOn6Gib, EmptyingTheCacheGoesBackToTheContext) {
  for (const int64_t bytes : {kSmall, k916, k2060}) allocator_.deallocate(allocator_.allocate(bytes), bytes);
  EXPECT_EQ(held_mib(), 3424);
  EXPECT_EQ(allocator_.trim(), 2978 * kMiB);
  EXPECT_EQ(held_mib(), 446);
}

TEST_F(CachingOn6Gib, AListThatKeepsGrowingEndsOutOfMemoryAtTheSamePlaceEachTime) {
  for (int round = 0; round < 2; ++round) {
    std::vector<void*> list;
    EXPECT_THROW(for (;;) list.push_back(allocator_.allocate(100 * kMiB)), OutOfMemory);
    EXPECT_EQ(list.size(), 47u);  // 4766.44 MiB are free
    for (void* block : list) allocator_.deallocate(block, 100 * kMiB);
  }
}

class Caching : public testing::Test {
 protected:
  CachingAllocator make(CachingRules rules = {}, std::optional<int64_t> limit = std::nullopt) {
    gpu_.initialize();
    return CachingAllocator(gpu_, "caching", limit ? std::optional(Limit{*limit}) : std::nullopt, rules);
  }
  // Leaves one free block of each size in the cache.
  static void cache(Allocator& allocator, const std::vector<int64_t>& sizes) {
    std::vector<void*> blocks;
    for (const int64_t bytes : sizes) blocks.push_back(allocator.allocate(bytes));
    for (size_t i = 0; i < sizes.size(); ++i) allocator.deallocate(blocks[i], sizes[i]);
  }

  SimulatedGpu gpu_{find_profile("card-6gb")};
};

TEST_F(Caching, SmallAndLargeBlocksUseSeparateSegments) {
  CachingAllocator allocator = make();
  cache(allocator, {20 * kMiB});
  allocator.allocate(kMiB);  // would fit in what is cached
  EXPECT_EQ(allocator.statistics().reserved.current, 22 * kMiB);
  allocator.allocate(kMiB + 1);
  EXPECT_EQ(allocator.statistics().reserved.current, 22 * kMiB);
}

TEST_F(Caching, StreamsHaveSegmentsOfTheirOwn) {
  CachingAllocator allocator = make();
  int handle = 0;
  const Stream other{&handle};
  void* block = allocator.allocate(1000);
  allocator.deallocate(block, 1000);
  EXPECT_NE(allocator.allocate(1000, other), block);
  EXPECT_EQ(allocator.statistics().reserved.current, 4 * kMiB);
  EXPECT_EQ(allocator.allocate(1000), block);
}

TEST_F(Caching, TheSmallestBlockThatFitsIsTakenOfEqualOnesThatOfTheNewestSegment) {
  CachingAllocator allocator = make();
  std::vector<void*> blocks;
  const std::vector<int64_t> sizes = {40 * kMiB, 30 * kMiB, 30 * kMiB};
  for (const int64_t bytes : sizes) blocks.push_back(allocator.allocate(bytes));
  for (const size_t i : {2u, 0u, 1u}) allocator.deallocate(blocks[i], sizes[i]);
  EXPECT_EQ(allocator.allocate(29 * kMiB), blocks[2]);
  EXPECT_EQ(allocator.allocate(29 * kMiB), blocks[1]);
  EXPECT_EQ(allocator.allocate(29 * kMiB), blocks[0]);
}

TEST_F(Caching, ARefusedSegmentIsTriedAgainAfterTheCacheWasEmptied) {
  CachingAllocator allocator = make({}, 100 * kMiB);
  cache(allocator, {40 * kMiB, 40 * kMiB});
  allocator.allocate(90 * kMiB);
  EXPECT_EQ(allocator.statistics().retries, 1);
  EXPECT_EQ(allocator.statistics().driver_releases, 2);
}

TEST_F(Caching, TrimKeepsSegmentsInUse) {
  CachingAllocator allocator = make();
  void* first = allocator.allocate(5 * kMiB);
  void* second = allocator.allocate(5 * kMiB);  // both in one segment of 20 MiB
  allocator.deallocate(second, 5 * kMiB);
  EXPECT_EQ(allocator.trim(), 0);
  allocator.deallocate(first, 5 * kMiB);
  EXPECT_EQ(allocator.trim(), 20 * kMiB);
}

TEST_F(Caching, ALimitCountsSegmentsNotTensors) {
  CachingAllocator allocator = make({}, 30 * kMiB);
  allocator.allocate(2 * kMiB);  // a segment of 20 MiB
  EXPECT_THROW(allocator.allocate(19 * kMiB), OutOfMemory);
  EXPECT_NE(allocator.allocate(10 * kMiB), nullptr);
}

TEST_F(Caching, ASplitLimitFreesOversizeBlocksBeforeTheWholeCache) {
  CachingAllocator allocator = make({.max_split_bytes = 100 * kMiB}, 400 * kMiB);
  cache(allocator, {50 * kMiB, 150 * kMiB, 120 * kMiB});
  allocator.allocate(200 * kMiB);  // 80 are left; 150 and 120 together make room, 50 stays
  EXPECT_EQ(allocator.statistics().retries, 0);
  EXPECT_EQ(allocator.statistics().driver_releases, 2);
  EXPECT_EQ(allocator.statistics().reserved.current, 250 * kMiB);
}

TEST_F(Caching, AnOversizeBlockThatIsTooLongForARequestGoesBackForIt) {
  CachingAllocator allocator = make({.max_split_bytes = 100 * kMiB}, 400 * kMiB);
  cache(allocator, {300 * kMiB});
  allocator.allocate(200 * kMiB);  // 300 is longer by more than 20 MiB
  EXPECT_EQ(allocator.statistics().reserved.current, 200 * kMiB);
  EXPECT_EQ(allocator.statistics().retries, 0);
}

TEST_F(Caching, GarbageCollectionFreesSegmentsThatWereIdleForLongest) {
  CachingAllocator allocator = make({.gc_share = 0.5}, 400 * kMiB);
  void* longest = allocator.allocate(100 * kMiB);
  void* latest = allocator.allocate(60 * kMiB);
  void* used = allocator.allocate(5 * kMiB);  // in a segment of 20 MiB
  allocator.deallocate(longest, 100 * kMiB);
  for (int i = 0; i < 10; ++i) {
    allocator.deallocate(used, 5 * kMiB);
    used = allocator.allocate(5 * kMiB);
  }
  allocator.deallocate(latest, 60 * kMiB);
  allocator.allocate(110 * kMiB);  // 180 are held, below half of the limit
  EXPECT_EQ(allocator.statistics().driver_releases, 0);
  allocator.allocate(120 * kMiB);  // 290 are: the one of 100 goes, and that is enough
  EXPECT_EQ(allocator.statistics().driver_releases, 1);
  EXPECT_EQ(allocator.statistics().reserved.current, (290 - 100 + 120) * kMiB);
}

TEST_F(Caching, GarbageCollectionDoesNothingWithoutALimit) {
  CachingAllocator allocator = make({.gc_share = 0.01});
  cache(allocator, {100 * kMiB});
  for (int i = 0; i < 10; ++i) allocator.deallocate(allocator.allocate(5 * kMiB), 5 * kMiB);
  allocator.allocate(200 * kMiB);
  EXPECT_EQ(allocator.statistics().driver_releases, 0);
}

TEST_F(Caching, RoundingToPowersOfTwoReusesBlocksOfOtherSizes) {
  CachingRules rules;
  rules.power2_divisions.emplace().fill(2);
  CachingAllocator allocator = make(rules);
  void* block = allocator.allocate(70 * kMiB);
  EXPECT_EQ(allocator.statistics().allocated.current, 96 * kMiB);
  allocator.deallocate(block, 70 * kMiB);
  EXPECT_EQ(allocator.allocate(95 * kMiB), block);
}

TEST_F(Caching, WhatJustCameBackIsFreeForAllWhoAsk) {
  CachingAllocator allocator = make();
  void* live = allocator.allocate(4 * kMiB);
  void* block = allocator.allocate(6 * kMiB);
  for (int i = 0; i < 3; ++i) {
    allocator.deallocate(block, 6 * kMiB);
    ASSERT_EQ(allocator.allocate(6 * kMiB), block);
  }
  allocator.deallocate(block, 6 * kMiB);
  // Joined with the following free block, it holds a block that would otherwise get a segment of its own.
  void* longer = allocator.allocate(15 * kMiB);
  EXPECT_EQ(longer, block);
  allocator.deallocate(longer, 15 * kMiB);
  EXPECT_EQ(allocator.statistics().largest_free_block, 16 * kMiB);
  EXPECT_EQ(allocator.statistics().driver_allocations, 1);
  EXPECT_EQ(allocator.statistics().allocations, 6);
  EXPECT_EQ(allocator.statistics().deallocations, 5);
  EXPECT_EQ(allocator.statistics().allocated.total, (4 + 4 * 6 + 16) * kMiB);
  EXPECT_EQ(allocator.statistics().allocated.current, 4 * kMiB);
  allocator.deallocate(live, 4 * kMiB);
  EXPECT_EQ(allocator.trim(), 20 * kMiB);
}

TEST_F(Caching, ABlockCannotComeBackTwiceRightAfterItWasTaken) {
  CachingAllocator allocator = make();
  void* block = allocator.allocate(kMiB);
  allocator.deallocate(block, kMiB);
  EXPECT_DEATH(allocator.deallocate(block, kMiB), "no such live block");
}

}  // namespace
}  // namespace headroom
