// Tests the differences of RMM's two strategies from the others.
#include <gtest/gtest.h>

#include <vector>

#include "allocators/strategies/arena_allocator.h"
#include "allocators/strategies/pool_allocator.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

TEST(Pool, DoublesWithoutALimit) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", std::nullopt, 0);
  std::vector<int64_t> reserved;
  for (int i = 0; i < 5; ++i) {
    pool.allocate(10 * kMiB);
    reserved.push_back(pool.statistics().reserved.current / kMiB);
  }
  EXPECT_EQ(reserved, (std::vector<int64_t>{10, 20, 40, 40, 80}));
}

TEST(Pool, TakesHalfOfWhatItsLimitLeaves) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", Limit{160 * kMiB}, 0);
  pool.allocate(kMiB);
  EXPECT_EQ(pool.statistics().reserved.current, 80 * kMiB);
  pool.allocate(80 * kMiB);
  EXPECT_EQ(pool.statistics().reserved.current, 160 * kMiB);
}

TEST(Pool, HalvesWhatTheDriverRefusesDownToTheRequest) {
  CpuDevice cpu(100 * kMiB);
  PoolAllocator pool(cpu, "pool", std::nullopt, 64 * kMiB);
  pool.allocate(60 * kMiB);
  pool.allocate(10 * kMiB);  // 64, 32: fits
  EXPECT_EQ(pool.statistics().reserved.current, 96 * kMiB);
}

TEST(Pool, StartsWithItsInitialSizeOrThrows) {
  CpuDevice cpu(kGiB);
  const auto pool = make_allocator(parse_strategy("pool:initial=64MiB"), cpu);
  EXPECT_EQ(pool->statistics().reserved.current, 64 * kMiB);
  EXPECT_THROW(make_allocator(parse_strategy("pool=32MiB:initial=64MiB"), cpu), OutOfMemory);
}

TEST(Pool, ExactBlocksAreCutFromTheSmallestThatFits) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", std::nullopt, 64 * kMiB);
  std::vector<void*> blocks;
  const std::vector<int64_t> kib = {700, 1, 500, 1, 600, 1};
  for (const int64_t each : kib) blocks.push_back(pool.allocate(each * kKiB));
  for (const size_t i : {0u, 2u, 4u}) pool.deallocate(blocks[i], kib[i] * kKiB);
  EXPECT_EQ(pool.allocate(499 * kKiB), blocks[2]);
  EXPECT_EQ(pool.allocate(kKiB), static_cast<char*>(blocks[2]) + 499 * kKiB);
}

TEST(Pool, WhatOneStreamFreedServesAnotherBeforeThePoolGrows) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", std::nullopt, 0);
  int handles[2];
  const Stream one{&handles[0]}, other{&handles[1]};
  void* first = pool.allocate(4 * kMiB, one);
  void* second = pool.allocate(4 * kMiB, one);
  pool.deallocate(first, 4 * kMiB, one);
  EXPECT_EQ(pool.allocate(4 * kMiB, other), first);
  pool.deallocate(first, 4 * kMiB, other);
  pool.deallocate(second, 4 * kMiB, one);
  EXPECT_EQ(pool.statistics().driver_allocations, 2);
}

// Neighbors that two streams freed are one block only when both lists are joined.
TEST(Pool, StreamsListsAreJoinedForARequestThatNoneOfThemHolds) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", Limit{8 * kMiB}, 8 * kMiB);
  int handles[2];
  const Stream one{&handles[0]}, other{&handles[1]};
  void* first = pool.allocate(4 * kMiB, one);
  void* second = pool.allocate(4 * kMiB, one);
  pool.deallocate(first, 4 * kMiB, one);
  pool.deallocate(second, 4 * kMiB, other);
  EXPECT_EQ(pool.statistics().largest_free_block, 4 * kMiB);
  EXPECT_EQ(pool.allocate(8 * kMiB, one), first);
  EXPECT_EQ(pool.statistics().retries, 0);
  pool.deallocate(first, 8 * kMiB, one);
}

TEST(Pool, TrimSeesSegmentsThatSeveralStreamsFreed) {
  CpuDevice cpu(kGiB);
  PoolAllocator pool(cpu, "pool", std::nullopt, 8 * kMiB);
  int handle = 0;
  void* first = pool.allocate(4 * kMiB);
  void* second = pool.allocate(4 * kMiB);
  pool.deallocate(first, 4 * kMiB);
  pool.deallocate(second, 4 * kMiB, Stream{&handle});
  EXPECT_EQ(pool.trim(), 8 * kMiB);
}

TEST(Arena, TakesHalfOfWhatIsFreeAndNeverGrows) {
  CpuDevice cpu(200 * kMiB);
  ArenaAllocator arena(cpu, "arena", std::nullopt);
  EXPECT_EQ(arena.statistics().reserved.current, 100 * kMiB);
  arena.allocate(60 * kMiB);
  EXPECT_THROW(arena.allocate(60 * kMiB), OutOfMemory);
  EXPECT_EQ(arena.statistics().driver_allocations, 1);
}

TEST(Arena, SmallBlocksOfOneStreamShareASuperblockAndStreamsDoNot) {
  CpuDevice cpu(200 * kMiB);
  ArenaAllocator arena(cpu, "arena", Limit{64 * kMiB});
  int handle = 0;
  void* first = arena.allocate(1000);
  EXPECT_EQ(distance(first, arena.allocate(1000)), 1024);
  EXPECT_EQ(distance(first, arena.allocate(1000, Stream{&handle})), kMiB);
  EXPECT_EQ(distance(first, arena.allocate(kMiB + 1)), 2 * kMiB);
}

TEST(Arena, TheFirstBlockByAddressIsTakenNotTheBest) {
  CpuDevice cpu(200 * kMiB);
  ArenaAllocator arena(cpu, "arena", Limit{64 * kMiB});
  std::vector<void*> blocks;
  const std::vector<int64_t> mib = {8, 2, 4, 2};
  for (const int64_t each : mib) blocks.push_back(arena.allocate(each * kMiB));
  arena.deallocate(blocks[2], 4 * kMiB);
  arena.deallocate(blocks[0], 8 * kMiB);
  EXPECT_EQ(arena.allocate(4 * kMiB), blocks[0]);
}

TEST(Arena, IdleSuperblocksServeLargeRequestsInTheEnd) {
  CpuDevice cpu(200 * kMiB);
  ArenaAllocator arena(cpu, "arena", Limit{8 * kMiB});
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(arena.allocate(kMiB));
  EXPECT_THROW(arena.allocate(2 * kMiB), OutOfMemory);
  for (void* block : blocks) arena.deallocate(block, kMiB);
  EXPECT_EQ(arena.allocate(8 * kMiB), blocks[0]);
  EXPECT_EQ(arena.statistics().driver_allocations, 1);
}

// Every other block is freed, so that each hole is too small for the next requests.
TEST(Arena, FindsAPlaceAmongFourTimesAsManyHolesWithLittleMoreWork) {
  const auto visits = [](int blocks) {
    SimulatedGpu gpu(find_profile("h200"), 0, Backing::kNone);
    gpu.initialize();
    ArenaAllocator arena(gpu, "arena", std::nullopt);
    std::vector<void*> pointers;
    for (int i = 0; i < blocks; ++i) pointers.push_back(arena.allocate(2 * kMiB));
    for (int i = 0; i < blocks; i += 2) arena.deallocate(pointers[static_cast<size_t>(i)], 2 * kMiB);
    for (int i = 0; i < blocks; i += 2) arena.deallocate(arena.allocate(3 * kMiB), 3 * kMiB);
    const int64_t visited = arena.visits();
    for (int i = 1; i < blocks; i += 2) arena.deallocate(pointers[static_cast<size_t>(i)], 2 * kMiB);
    return visited;
  };
  EXPECT_GT(visits(1000), 0);
  EXPECT_LE(visits(4000), 6 * visits(1000));
}

TEST(Arena, AnotherStreamMayFree) {
  CpuDevice cpu(200 * kMiB);
  ArenaAllocator arena(cpu, "arena", Limit{8 * kMiB});
  int handle = 0;
  void* block = arena.allocate(1000);
  arena.deallocate(block, 1000, Stream{&handle});
  EXPECT_EQ(arena.allocate(1000), block);
}

}  // namespace
}  // namespace headroom
