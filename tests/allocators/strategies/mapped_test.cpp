// Tests the strategy `mapped`: pages move on demand, and memory is full only when it is really full.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "allocators/strategies/mapped_allocator.h"
#include "base/bytes.h"
#include "device/faulty/faulty_device.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"
#include "tests/allocators/helpers.h"
#include "tests/allocators/real_traces.h"

namespace headroom {
namespace {

constexpr int64_t kPage = 2 * kMiB;
constexpr int64_t kFree =
    512 * kMiB - 64 * kMiB - 32 * kMiB;  // free memory of the small profile, with a context

class Mapped : public testing::Test {
 protected:
  Mapped() { gpu_.initialize(); }

  MappedAllocator make(std::optional<Limit> limit = std::nullopt, int64_t page_bytes = 0) {
    return MappedAllocator(gpu_, "mapped", limit, page_bytes);
  }
  void fill_all_and_free_every_other(MappedAllocator& allocator, int64_t bytes) {
    std::vector<void*> blocks;
    for (int64_t i = 0; i < kFree / bytes; ++i) blocks.push_back(allocator.allocate(bytes));
    for (size_t i = 0; i < blocks.size(); i += 2) allocator.deallocate(blocks[i], bytes);
  }

  SimulatedGpu gpu_{small_profile()};
};

TEST_F(Mapped, TakesPagesAsTheyAreNeeded) {
  MappedAllocator allocator = make();
  EXPECT_EQ(allocator.statistics().reserved.current, 0);
  void* first = allocator.allocate(3 * kMiB);
  EXPECT_EQ(allocator.statistics().reserved.current, 2 * kPage);
  void* second = allocator.allocate(kMiB);  // the rest of the second page
  EXPECT_EQ(allocator.statistics().reserved.current, 2 * kPage);
  EXPECT_EQ(static_cast<char*>(second) - static_cast<char*>(first), 3 * kMiB);
}

TEST_F(Mapped, ARequestFitsWheneverEnoughPagesAreFreeAnywhere) {
  for (const int64_t bytes : {kPage, 4 * kPage}) {
    MappedAllocator allocator = make();
    fill_all_and_free_every_other(allocator, bytes);
    const int64_t free_bytes = kFree - allocator.statistics().allocated.current;
    EXPECT_EQ(allocator.statistics().largest_free_block, free_bytes);
    EXPECT_EQ(allocator.statistics().fragmentation(), 0);
    void* block = allocator.allocate(free_bytes);
    EXPECT_EQ(allocator.statistics().reserved.current, kFree);
    EXPECT_THROW(allocator.allocate(64 * kKiB + 1), OutOfMemory);
    allocator.deallocate(block, free_bytes);
    EXPECT_EQ(allocator.statistics().retries, 0);
  }
}

TEST_F(Mapped, ContentsStayWhenIdlePagesAreTakenFromBothSides) {
  MappedAllocator allocator = make();
  std::vector<void*> blocks;
  for (int64_t i = 0; i < kFree / kPage; ++i) blocks.push_back(allocator.allocate(kPage));
  for (size_t i = 0; i < blocks.size(); ++i)
    std::fill_n(static_cast<char*>(blocks[i]), 64, static_cast<char>(i));
  for (size_t i = 0; i < blocks.size(); i += 2) allocator.deallocate(blocks[i], kPage);
  auto* large = static_cast<char*>(allocator.allocate(kFree / 2));
  for (int64_t at = 0; at < kFree / 2; at += kPage) std::fill_n(large + at, 64, char{-1});
  for (size_t i = 1; i < blocks.size(); i += 2) {
    EXPECT_EQ(
        std::count(static_cast<char*>(blocks[i]), static_cast<char*>(blocks[i]) + 64, static_cast<char>(i)),
        64);
  }
}

// 2^18 pages under one block: with work per page that grew with their number this would not end.
TEST(MappedSizes, ABlockMayLieOnAnyNumberOfPages) {
  DeviceProfile profile = small_profile();
  profile.total_bytes = int64_t{1} << 50;
  SimulatedGpu gpu(profile, 0, Backing::kNone);
  gpu.initialize();
  MappedAllocator allocator(gpu, "mapped", std::nullopt, 0);
  constexpr int64_t kBytes = 512 * kGiB;
  for (int turn = 0; turn < 2; ++turn) {
    void* block = allocator.allocate(kBytes);
    EXPECT_EQ(allocator.statistics().reserved.current, kBytes);
    allocator.deallocate(block, kBytes);
  }
}

// Beyond the addresses of one range, whatever is free below.
TEST(MappedSizes, ARequestAboveAllAddressesIsOutOfMemory) {
  DeviceProfile profile = small_profile();
  profile.total_bytes = int64_t{1} << 59;
  SimulatedGpu gpu(profile, 0, Backing::kNone);
  gpu.initialize();
  MappedAllocator allocator(gpu, "mapped", std::nullopt, 0);
  allocator.deallocate(allocator.allocate(4 * kPage), 4 * kPage);
  for (int power = 40; power < 63; ++power) {
    for (const int64_t more : {-512, -1, 0, 1, 512}) {
      EXPECT_THROW(allocator.allocate((int64_t{1} << power) + more), OutOfMemory) << power << " " << more;
    }
  }
}

TEST_F(Mapped, ALimitIsKeptToThePage) {
  for (const int64_t extra : {int64_t{0}, kPage - 1}) {
    MappedAllocator allocator = make(Limit{10 * kPage + extra});
    void* block = allocator.allocate(10 * kPage);
    EXPECT_EQ(allocator.statistics().reserved.current, 10 * kPage);
    EXPECT_THROW(allocator.allocate(512), OutOfMemory);
    EXPECT_EQ(allocator.statistics().reserved.peak, 10 * kPage);
    allocator.deallocate(block, 10 * kPage);
  }
}

TEST_F(Mapped, ARefusedRequestTakesNothingFromTheDriverAndGivesNothingBack) {
  MappedAllocator allocator = make(Limit{16 * kPage});
  void* live = allocator.allocate(8 * kPage);
  allocator.deallocate(allocator.allocate(4 * kPage), 4 * kPage);
  const Statistics before = allocator.statistics();
  EXPECT_THROW(allocator.allocate(9 * kPage), OutOfMemory);
  const Statistics after = allocator.statistics();
  EXPECT_EQ(after.reserved.current, before.reserved.current);
  EXPECT_EQ(after.driver_allocations, before.driver_allocations);
  EXPECT_EQ(after.driver_releases, 0);
  EXPECT_EQ(after.driver_mappings, before.driver_mappings);
  allocator.deallocate(live, 8 * kPage);
}

TEST_F(Mapped, TrimGivesIdlePagesBackAndKeepsTheRest) {
  MappedAllocator allocator = make();
  void* first = allocator.allocate(3 * kPage);
  void* second = allocator.allocate(3 * kPage + kMiB);
  void* third = allocator.allocate(kPage);  // shares a page with the second
  allocator.deallocate(second, 3 * kPage + kMiB);
  EXPECT_EQ(allocator.trim(), 3 * kPage);
  EXPECT_EQ(allocator.trim(), 0);
  EXPECT_EQ(allocator.statistics().reserved.current, 5 * kPage);
  allocator.deallocate(first, 3 * kPage);
  allocator.deallocate(third, kPage);
  EXPECT_EQ(allocator.trim(), 5 * kPage);
  EXPECT_EQ(gpu_.memory().info().process, 32 * kMiB);
}

TEST_F(Mapped, WhatWasMappedOnceIsNotMappedAgain) {
  MappedAllocator allocator = make();
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (int64_t i = 1; i <= 12; ++i) blocks.push_back(allocator.allocate(i * kMiB + 1000));
    for (int64_t i = 12; i >= 1; --i)
      allocator.deallocate(blocks[static_cast<size_t>(i - 1)], i * kMiB + 1000);
    EXPECT_EQ(allocator.statistics().driver_mappings, allocator.statistics().driver_allocations);
  }
}

TEST_F(Mapped, UnmappingWaitsForTheWorkThatUsedThePage) {
  MappedAllocator allocator = make(Limit{8 * kPage});
  void* first = allocator.allocate(4 * kPage);
  void* second = allocator.allocate(4 * kPage);
  gpu_.streams().occupy({}, 1000);
  allocator.deallocate(first, 4 * kPage);
  allocator.deallocate(second, 4 * kPage);
  void* same = allocator.allocate(4 * kPage);  // mapped as it is: stream order suffices
  EXPECT_EQ(gpu_.streams().now_us(), 0);
  allocator.trim();
  EXPECT_EQ(gpu_.streams().now_us(), 1000);
  gpu_.streams().occupy({}, 500);
  EXPECT_EQ(allocator.trim(), 0);  // nothing is idle, so nothing is released
  EXPECT_EQ(gpu_.streams().now_us(), 1000);
  allocator.deallocate(same, 4 * kPage);
}

TEST_F(Mapped, PagesMayBeLargerThanTheDevicesGranularity) {
  MappedAllocator allocator = make(std::nullopt, 5 * kMiB);
  EXPECT_EQ(allocator.page_bytes(), 8 * kMiB);
  allocator.allocate(9 * kMiB);
  EXPECT_EQ(allocator.statistics().reserved.current, 16 * kMiB);
  EXPECT_EQ(allocator.statistics().driver_allocations, 2);
}

// Two streams that use the same memory in turns, on a device large enough for pages to grow.
class MappedPagesGrow : public testing::Test {
 protected:
  static constexpr int64_t kHeld = 5 * kGiB;

  // Mappings of the last of some turns, each of a stream that had none of the memory before.
  int64_t mappings_of_a_turn(MappedAllocator& allocator) {
    int64_t before = 0;
    for (int turn = 0; turn < 6; ++turn) {
      before = allocator.statistics().driver_mappings;
      const Stream stream = turn == 0 ? Stream{} : gpu_.streams().new_stream();
      allocator.deallocate(allocator.allocate(kHeld, stream), kHeld, stream);
    }
    return allocator.statistics().driver_mappings - before;
  }

  SimulatedGpu gpu_{find_profile("h200"), 0, Backing::kNone};
  const Stream other_ = gpu_.streams().new_stream();
};

TEST_F(MappedPagesGrow, WhenTheyMoveOftenUnlessTheUserSetTheirSize) {
  MappedAllocator fixed(gpu_, "mapped", Limit{kHeld}, kPage);
  EXPECT_EQ(mappings_of_a_turn(fixed), kHeld / kPage);
  fixed.trim();
  MappedAllocator growing(gpu_, "mapped", Limit{kHeld});
  EXPECT_EQ(mappings_of_a_turn(growing), kHeld / (2 * kPage));
  EXPECT_EQ(growing.statistics().reserved.current, kHeld);
  EXPECT_EQ(growing.statistics().reserved.peak, kHeld);
}

TEST_F(MappedPagesGrow, AndAreExchangedForSmallOnesWhereOnlyThoseFit) {
  const int64_t before = gpu_.memory().info().process;
  {
    MappedAllocator allocator(gpu_, "mapped", Limit{kHeld});
    mappings_of_a_turn(allocator);
    void* small = allocator.allocate(1000);
    void* rest = allocator.allocate(kHeld - kPage);
    EXPECT_THROW(allocator.allocate(kMiB), OutOfMemory);
    allocator.deallocate(rest, kHeld - kPage);
    allocator.deallocate(allocator.allocate(kHeld - kPage, other_), kHeld - kPage, other_);
    allocator.deallocate(small, 1000);
    EXPECT_EQ(allocator.statistics().reserved.peak, kHeld);
  }
  EXPECT_EQ(gpu_.memory().info().process, before);
}

// 0.55 M, free it, 0.1 M, 0.55 M of a pool of M: Flashlight's smallest published case of fragmentation.
TEST_F(Mapped, ServesTheSmallestPublishedFragmentationCase) {
  MappedAllocator allocator = make(Limit{100 * kMiB});
  allocator.deallocate(allocator.allocate(55 * kMiB), 55 * kMiB);
  allocator.allocate(10 * kMiB);
  EXPECT_NE(allocator.allocate(55 * kMiB), nullptr);
}

TEST_F(Mapped, SmallBlocksPinNoPageOfLargeOnes) {
  MappedAllocator allocator = make();
  std::vector<void*> small, large;
  for (int i = 0; i < 40; ++i) {
    large.push_back(allocator.allocate(4 * kMiB));
    small.push_back(allocator.allocate(1000));
  }
  for (void* block : large) allocator.deallocate(block, 4 * kMiB);
  EXPECT_EQ(allocator.trim(), 160 * kMiB);
  EXPECT_EQ(allocator.statistics().reserved.current, kPage);
  for (void* block : small) allocator.deallocate(block, 1000);
}

// Simulates a limit on addresses, and the thread sanitizer.
TEST_F(Mapped, AProcessShortOfAddressesGetsShorterRanges) {
  FaultyDevice device(gpu_);
  MappedAllocator allocator(device, "mapped", std::nullopt);
  device.faults().arm({.failing_call = 1, .failing_calls = 3});
  void* block = allocator.allocate(3 * kPage);
  EXPECT_GT(device.faults().calls(), 3);
  EXPECT_EQ(allocator.statistics().allocated.current, 3 * kPage);
  allocator.deallocate(block, 3 * kPage);
}

// Calls fail in the middle of a request that needs eight pages: the accounts are the same as before except
// for idle pages. A single refused mapping is retried.
TEST_F(Mapped, AFailureHalfWayReleasesEverything) {
  // Three mappings fail: in a run, alone, and after other mappings have been given up.
  for (const int64_t calls : {1, 3}) {
    int64_t last_failure = 0;
    for (int64_t call = 1; call <= 20; ++call) {
      FaultyDevice device(gpu_);
      MappedAllocator allocator(device, "mapped", Limit{8 * kPage});
      void* first = allocator.allocate(3 * kPage);
      void* second = allocator.allocate(kPage);
      allocator.deallocate(first, 3 * kPage);
      device.faults().arm({.failing_call = call, .failing_calls = calls});
      void* third = nullptr;
      try {
        third = allocator.allocate(7 * kPage);  // three idle pages and four new ones
      } catch (const OutOfMemory&) {
        last_failure = call;
        EXPECT_EQ(allocator.statistics().allocated.current, kPage) << call;
        EXPECT_LE(allocator.statistics().reserved.current, 8 * kPage) << call;
        device.faults().arm({});
        third = allocator.allocate(7 * kPage);
      }
      allocator.deallocate(third, 7 * kPage);
      allocator.deallocate(second, kPage);
      EXPECT_EQ(allocator.trim(), allocator.statistics().reserved.peak) << call;
      EXPECT_EQ(allocator.statistics().reserved.current, 0) << call;
    }
    EXPECT_EQ(last_failure, calls == 1 ? 4 : 11);  // four creations, and seven mappings
  }
}

// Two layouts that need the same pages in turns: after the first turn nothing is left to be mapped.
TEST_F(Mapped, PagesComeBackToAnyPlaceTheyHadWithoutACallOfTheDriver) {
  MappedAllocator allocator = make(Limit{12 * kPage});
  int64_t after_two = 0;
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(allocator.allocate(2 * kPage));
    for (size_t i = 0; i < 6; i += 2) allocator.deallocate(blocks[i], 2 * kPage);
    auto* large = static_cast<char*>(allocator.allocate(6 * kPage));
    for (int64_t at = 0; at < 6 * kPage; at += kPage)
      std::fill_n(large + at, 64, static_cast<char>(at / kPage));
    for (int64_t at = 0; at < 6 * kPage; at += kPage) EXPECT_EQ(large[at], static_cast<char>(at / kPage));
    for (size_t i = 1; i < 6; i += 2) allocator.deallocate(blocks[i], 2 * kPage);
    allocator.deallocate(large, 6 * kPage);
    if (turn == 1) after_two = allocator.statistics().driver_mappings;
  }
  EXPECT_EQ(allocator.statistics().driver_mappings, after_two);
  EXPECT_EQ(allocator.trim(), 12 * kPage);
  EXPECT_EQ(gpu_.memory().info().process, 32 * kMiB);
}

// Sizes and lifetimes at random, the same in each turn.
TEST(MappedPatterns, AProgramThatRepeatsItselfCallsTheDriverNoMoreFromTheFourthTurnOn) {
  struct Block {
    void* pointer;
    int64_t bytes;
  };
  for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    SimulatedGpu gpu(find_profile("h200"), 0, Backing::kNone);
    MappedAllocator allocator(gpu, "mapped", std::nullopt);
    std::vector<int64_t> calls;
    for (int turn = 0; turn < 6; ++turn) {
      Random random(seed);
      std::vector<Block> live;
      for (int step = 0; step < 600; ++step) {
        if (live.size() < 30 && random.below(100) < 60) {
          const int64_t bytes = (100 + random.below(1000)) << random.below(18);
          live.push_back({allocator.allocate(bytes), bytes});
        } else if (!live.empty()) {
          std::swap(live[static_cast<size_t>(random.below(static_cast<int64_t>(live.size())))], live.back());
          allocator.deallocate(live.back().pointer, live.back().bytes);
          live.pop_back();
        }
      }
      for (const Block& block : live) allocator.deallocate(block.pointer, block.bytes);
      calls.push_back(allocator.statistics().driver_calls());
    }
    EXPECT_EQ(calls[5], calls[2]) << "seed " << seed;
  }
}

// Memory is so short that pages move at most requests, to and from their earlier places.
TEST_F(Mapped, NoTwoBlocksEverHaveTheSameMemory) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    MappedAllocator allocator = make(Limit{24 * kPage});
    RandomLoad load(allocator, gpu_.memory(), seed, 9 * kMiB, 40);
    for (int step = 0; step < 1500; ++step) ASSERT_TRUE(load.step()) << "step " << step;
    EXPECT_TRUE(load.finish());
    EXPECT_GT(allocator.statistics().driver_mappings, 0);
  }
}

TEST_F(Mapped, AStreamLeavesThePagesOfOthersToThemWhileTheDeviceHasMore) {
  MappedAllocator allocator = make();
  const Stream other = gpu_.streams().new_stream();
  const auto use = [&](Stream stream) {
    allocator.deallocate(allocator.allocate(20 * kPage, stream), 20 * kPage, stream);
  };
  use({});
  use(other);
  EXPECT_EQ(allocator.statistics().reserved.current, 40 * kPage);
  const int64_t mappings = allocator.statistics().driver_mappings;
  for (int turn = 0; turn < 10; ++turn) use(turn % 2 == 0 ? Stream{} : other);
  EXPECT_EQ(allocator.statistics().driver_mappings, mappings);
  EXPECT_EQ(allocator.statistics().stream_waits, 0);
  // All that the device has: then it takes them.
  allocator.deallocate(allocator.allocate(kFree, other), kFree, other);
  EXPECT_EQ(allocator.statistics().reserved.peak, kFree);
  EXPECT_EQ(allocator.statistics().stream_waits, 1);
}

TEST_F(Mapped, AStreamTakesThePagesOfOneThatHasBeenQuietForLong) {
  MappedAllocator allocator = make();
  const Stream other = gpu_.streams().new_stream();
  allocator.deallocate(allocator.allocate(20 * kPage, other), 20 * kPage, other);
  for (int i = 0; i < 30'000; ++i) allocator.deallocate(allocator.allocate(kPage), kPage);
  allocator.deallocate(allocator.allocate(20 * kPage), 20 * kPage);
  EXPECT_EQ(allocator.statistics().reserved.peak, 21 * kPage);
}

double reserved_over_live(const std::vector<TraceEvent>& events) {
  const Replay run = replay(events, {.name = "mapped"});
  return static_cast<double>(run.statistics.reserved.peak) / static_cast<double>(largest_live_set(events));
}

// A cache of twelve layers that is made anew, one token longer, at each step, as when a text is generated.
TEST(MappedPatterns, GrowingSequencesStayNearTheirNeed) {
  std::vector<TraceEvent> events;
  int32_t block = 0;
  for (int64_t request = 0; request < 3; ++request) {
    std::vector<int32_t> cache;
    for (int64_t length = 1; length < 200; ++length) {
      for (size_t layer = 0; layer < 12; ++layer) {
        events.push_back({true, block, (length * 40960 + 1024) * 8});
        if (length == 1) cache.push_back(block);
        events.push_back({true, ++block, (3 * length * 4096 + 70'000) * 8});
        if (length > 1) events.push_back({false, std::exchange(cache[layer], block - 1), 0});
        events.push_back({false, block++, 0});
      }
    }
    for (const int32_t layer : cache) events.push_back({false, layer, 0});
  }
  EXPECT_LE(reserved_over_live(events), 1.01);
}

// Blocks of 64 B to 64 KiB live among a few that are a thousand times as large, and all go at random.
TEST(MappedPatterns, ManySmallBlocksDoNotHoldThePagesOfLargeOnes) {
  std::vector<TraceEvent> events;
  std::vector<int32_t> live;
  uint64_t state = 5;
  const auto random = [&](int64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(bound));
  };
  for (int32_t block = 0; block < 20'000;) {
    if (live.size() > 8000 || (!live.empty() && random(100) < 48)) {
      std::swap(live[static_cast<size_t>(random(static_cast<int64_t>(live.size())))], live.back());
      events.push_back({false, live.back(), 0});
      live.pop_back();
    } else {
      const bool large = random(100) < 2;
      const int64_t power = int64_t{1} << (large ? 20 + random(9) : 6 + random(10));
      events.push_back({true, block, power + random(power)});
      live.push_back(block++);
    }
  }
  EXPECT_LE(reserved_over_live(events), 1.02);
}

class MappedTraces : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    events_ = read_trace(GetParam());
    if (events_.empty()) GTEST_SKIP() << "no trace in " << traces_folder();
  }

  // Frees the blocks that a pass leaves live at its end.
  std::vector<TraceEvent> passes(int32_t count) const {
    constexpr int32_t kMostBlocks = 1'000'000;
    std::vector<TraceEvent> result;
    for (int32_t pass = 0; pass < count; ++pass) {
      std::set<int32_t> live;
      for (TraceEvent event : events_) {
        event.block += pass * kMostBlocks;
        event.allocates ? static_cast<void>(live.insert(event.block))
                        : static_cast<void>(live.erase(event.block));
        result.push_back(event);
      }
      for (const int32_t block : live) result.push_back({false, block, 0});
    }
    return result;
  }

  std::vector<TraceEvent> events_;
};

TEST_P(MappedTraces, ReserveLittleMoreThanTheLargestLiveSet) {
  EXPECT_LE(reserved_over_live(events_), 1.005);
  EXPECT_LE(reserved_over_live(passes(3)), 1.005);
}

TEST_P(MappedTraces, TheThirdPassRarelyCallsTheDriverAndTheFourthNever) {
  const int64_t two = replay(passes(2), {.name = "mapped"}).statistics.driver_calls();
  const int64_t three = replay(passes(3), {.name = "mapped"}).statistics.driver_calls();
  EXPECT_LE(static_cast<double>(three - two), 0.004 * static_cast<double>(events_.size()));
  EXPECT_EQ(replay(passes(4), {.name = "mapped"}).statistics.driver_calls(), three);
}

INSTANTIATE_TEST_SUITE_P(Traces, MappedTraces, testing::Values("resnet50", "deeplab", "gpt2_train", "gnn"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace headroom
