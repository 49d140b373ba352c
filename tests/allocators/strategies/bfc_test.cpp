// TensorFlow's rules, one by one.
#include <gtest/gtest.h>

#include <vector>

#include "allocators/strategies/bfc_allocator.h"
#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "tests/allocators/devices.h"
#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

using Growth = BfcAllocator::Growth;

class Bfc : public testing::Test {
 protected:
  BfcAllocator at_once(int64_t limit) { return BfcAllocator(cpu_, "test", Limit{limit}, Growth::kAtOnce); }
  BfcAllocator doubling(std::optional<Limit> limit = std::nullopt) {
    return BfcAllocator(cpu_, "test", limit, Growth::kDoubling);
  }

  CpuDevice cpu_{8 * kGiB};
};

TEST_F(Bfc, RegionsDoubleFromTwoMiB) {
  BfcAllocator allocator = doubling();
  EXPECT_TRUE(allocator.region_bytes().empty());
  for (int i = 0; i < 15; ++i) EXPECT_NE(allocator.allocate(kMiB), nullptr);
  EXPECT_EQ(allocator.region_bytes(), (std::vector<int64_t>{2 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB}));
}

// The size that a large request raised the region to is used again before it doubles.
TEST_F(Bfc, ALargeRequestDoublesTheRegionUntilItFits) {
  BfcAllocator allocator = doubling();
  allocator.allocate(33 * kMiB);
  allocator.allocate(40 * kMiB);
  allocator.allocate(65 * kMiB);
  EXPECT_EQ(allocator.region_bytes(), (std::vector<int64_t>{64 * kMiB, 64 * kMiB, 128 * kMiB}));
}

TEST_F(Bfc, GrowthStopsAtTheLimitWithASmallerLastRegion) {
  BfcAllocator allocator = doubling(Limit{9 * kMiB});
  for (int i = 0; i < 9; ++i) allocator.allocate(kMiB);
  EXPECT_EQ(allocator.region_bytes(), (std::vector<int64_t>{2 * kMiB, 4 * kMiB, 3 * kMiB}));
  EXPECT_THROW(allocator.allocate(1), OutOfMemory);
}

TEST_F(Bfc, ALimitBelowTwoMiBIsTheFirstRegion) {
  BfcAllocator allocator = doubling(Limit{kMiB + 100});
  allocator.allocate(1);
  EXPECT_EQ(allocator.region_bytes(), std::vector<int64_t>{kMiB});
}

// 1024 MiB do not fit in 800: 1024 x 0.9 x 0.9 = 829.44 neither, x 0.9 = 746.5 does.
TEST_F(Bfc, RetriesARefusedRegionAtNineTenthsOfItsSize) {
  CpuDevice cpu(800 * kMiB);
  BfcAllocator allocator(cpu, "test", Limit{1024 * kMiB}, Growth::kAtOnce);
  int64_t expected = 1024 * kMiB;
  for (int i = 0; i < 3; ++i) {
    expected = round_up(static_cast<int64_t>(static_cast<double>(expected) * 0.9), 256);
  }
  EXPECT_EQ(allocator.region_bytes(), std::vector<int64_t>{expected});
  EXPECT_EQ(format_mib(expected), "746.5");
}

// 128, 115.2 and 103.7 MiB do not fit, 93.3 would be below the request: TensorFlow gives up here too.
TEST_F(Bfc, BackingOffEndsBelowTheRequest) {
  CpuDevice cpu(101 * kMiB);
  BfcAllocator allocator(cpu, "test", std::nullopt, Growth::kDoubling);
  EXPECT_THROW(allocator.allocate(100 * kMiB), OutOfMemory);
  EXPECT_TRUE(allocator.region_bytes().empty());
  EXPECT_EQ(cpu.memory().info().process, 0);
  EXPECT_NE(allocator.allocate(90 * kMiB), nullptr);
}

TEST_F(Bfc, NothingAtAllToTakeIsOutOfMemoryAtOnce) {
  CpuDevice cpu(kMiB);
  void* all = cpu.memory().try_allocate(kMiB);
  EXPECT_THROW(BfcAllocator(cpu, "test", Limit{kMiB}, Growth::kAtOnce), OutOfMemory);
  cpu.memory().release(all, kMiB);
}

TEST_F(Bfc, TheSmallestFreeBlockThatFitsIsTaken) {
  BfcAllocator allocator = at_once(64 * kMiB);
  std::vector<void*> blocks;
  for (const int64_t kib : {700, 1, 500, 1, 600, 1}) blocks.push_back(allocator.allocate(kib * kKiB));
  allocator.deallocate(blocks[0], 700 * kKiB);
  allocator.deallocate(blocks[2], 500 * kKiB);
  allocator.deallocate(blocks[4], 600 * kKiB);
  EXPECT_EQ(allocator.allocate(490 * kKiB), blocks[2]);
  EXPECT_EQ(allocator.allocate(490 * kKiB), blocks[4]);
  EXPECT_EQ(allocator.allocate(490 * kKiB), blocks[0]);
}

TEST_F(Bfc, EqualBlocksAreTakenFromTheEarliestRegionAndTheLowestOffset) {
  BfcAllocator allocator = doubling();
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocator.allocate(kMiB));  // two in the first region
  // Every other one, so that none grow together.
  for (const size_t i : {5u, 3u, 1u}) allocator.deallocate(blocks[i], kMiB);
  for (const size_t i : {1u, 3u, 5u}) EXPECT_EQ(allocator.allocate(kMiB), blocks[i]);
}

TEST_F(Bfc, ABlockIsSplitFromTwiceTheRequestOn) {
  BfcAllocator allocator = at_once(16 * kMiB);
  void* hole = allocator.allocate(1024 * kKiB);
  allocator.allocate(256);
  allocator.deallocate(hole, 1024 * kKiB);
  void* whole = allocator.allocate(512 * kKiB + 256);
  EXPECT_EQ(whole, hole);
  EXPECT_EQ(allocator.statistics().allocated.current, 1024 * kKiB + 256);
  allocator.deallocate(whole, 512 * kKiB + 256);
  EXPECT_EQ(allocator.allocate(512 * kKiB), hole);
  EXPECT_EQ(allocator.statistics().allocated.current, 512 * kKiB + 256);
}

TEST_F(Bfc, ABlockIsSplitWhen128MiBWouldBeWasted) {
  BfcAllocator allocator = at_once(512 * kMiB);
  void* block = allocator.allocate(384 * kMiB);  // waste would be 128 MiB
  EXPECT_EQ(allocator.statistics().allocated.current, 384 * kMiB);
  allocator.deallocate(block, 384 * kMiB);
  allocator.allocate(384 * kMiB + 256);
  EXPECT_EQ(allocator.statistics().allocated.current, 512 * kMiB);
}

TEST_F(Bfc, AFreedBlockJoinsBothFreeNeighbors) {
  BfcAllocator allocator = at_once(4 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(distance(blocks[0], blocks[3]), 3 * kMiB);
  allocator.deallocate(blocks[0], kMiB);
  allocator.deallocate(blocks[2], kMiB);
  EXPECT_EQ(allocator.statistics().largest_free_block, kMiB);
  EXPECT_DOUBLE_EQ(allocator.statistics().fragmentation(), 0.5);
  EXPECT_THROW(allocator.allocate(2 * kMiB), OutOfMemory);
  allocator.deallocate(blocks[1], kMiB);
  EXPECT_EQ(allocator.statistics().largest_free_block, 3 * kMiB);
  EXPECT_DOUBLE_EQ(allocator.statistics().fragmentation(), 0);
  EXPECT_EQ(allocator.allocate(3 * kMiB), blocks[0]);
}

TEST_F(Bfc, FragmentationOfAFullPoolIsZeroNotNaN) {
  BfcAllocator allocator = at_once(kMiB);
  allocator.allocate(kMiB);
  EXPECT_EQ(allocator.statistics().fragmentation(), 0);
}

TEST_F(Bfc, RegionsNeverJoin) {
  BfcAllocator allocator = doubling(Limit{6 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(2 * kMiB));
  for (void* block : blocks) allocator.deallocate(block, 2 * kMiB);
  EXPECT_EQ(allocator.statistics().largest_free_block, 4 * kMiB);
}

TEST_F(Bfc, IdleRegionsGoBackBeforeOutOfMemory) {
  BfcAllocator allocator = doubling(Limit{6 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(2 * kMiB));
  for (void* block : blocks) allocator.deallocate(block, 2 * kMiB);
  allocator.allocate(6 * kMiB);  // no region holds it, together they do
  EXPECT_EQ(allocator.region_bytes(), std::vector<int64_t>{6 * kMiB});
  EXPECT_EQ(allocator.statistics().retries, 1);
  EXPECT_EQ(allocator.statistics().driver_releases, 2);
}

TEST_F(Bfc, AnIdlePoolIsKeptWhenTheRequestIsAboveTheLimit) {
  BfcAllocator allocator = at_once(64 * kMiB);
  EXPECT_THROW(allocator.allocate(65 * kMiB), OutOfMemory);
  EXPECT_EQ(allocator.statistics().driver_releases, 0);
  EXPECT_EQ(allocator.statistics().reserved.current, 64 * kMiB);
}

TEST_F(Bfc, TrimKeepsRegionsInUse) {
  BfcAllocator allocator = doubling();
  void* first = allocator.allocate(2 * kMiB);
  void* second = allocator.allocate(4 * kMiB);
  allocator.deallocate(second, 4 * kMiB);
  EXPECT_EQ(allocator.trim(), 4 * kMiB);
  EXPECT_EQ(allocator.region_bytes(), std::vector<int64_t>{2 * kMiB});
  allocator.deallocate(first, 2 * kMiB);
  EXPECT_EQ(allocator.trim(), 2 * kMiB);
}

// Two runs differ in addresses, not in placement: relative to the first block, all offsets are equal.
TEST_F(Bfc, PlacementDoesNotDependOnAddresses) {
  std::vector<std::vector<int64_t>> runs(2);
  for (auto& offsets : runs) {
    BfcAllocator allocator = at_once(256 * kMiB);
    void* first = allocator.allocate(1);
    std::vector<std::pair<void*, int64_t>> live;
    uint64_t state = 9;
    for (int i = 0; i < 4000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto random = static_cast<int64_t>(state >> 40);
      if (live.size() > 100) {
        const size_t index = static_cast<size_t>(random) % live.size();
        allocator.deallocate(live[index].first, live[index].second);
        live.erase(live.begin() + static_cast<int64_t>(index));
      }
      const int64_t bytes = (int64_t{1} << (random % 20)) + random % 1000;
      live.emplace_back(allocator.allocate(bytes), bytes);
      offsets.push_back(distance(first, live.back().first));
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

}  // namespace
}  // namespace headroom
