// Published cases, and the expected behavior of each strategy. If strategies should differ, the test checks
// the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "allocators/strategies/pool_allocator.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

enum class Outcome { kFits, kOutOfMemory };

struct CaseRow {
  const char* strategy;
  Outcome outcome;
};

std::string case_name(const testing::TestParamInfo<CaseRow>& info) {
  std::string name = info.param.strategy;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// A device of 100 MiB, all of it for the strategy.
class PublishedCase : public testing::TestWithParam<CaseRow> {
 protected:
  static constexpr int64_t kDevice = 100 * kMiB;

  Outcome outcome_of(const std::vector<int64_t>& steps) {
    CpuDevice device(kDevice);
    StrategySettings settings = parse_strategy(GetParam().strategy);
    settings.limit_bytes = kDevice;
    const auto allocator = make_allocator(settings, device);
    std::vector<std::pair<void*, int64_t>> blocks;
    Outcome outcome = Outcome::kFits;
    try {
      for (const int64_t step : steps) {  // above 0: allocate so many; else free the block of that number
        if (step > 0) {
          blocks.emplace_back(allocator->allocate(step), step);
        } else {
          auto& [pointer, bytes] = blocks[static_cast<size_t>(-step)];
          allocator->deallocate(pointer, bytes);
          pointer = nullptr;
        }
      }
    } catch (const OutOfMemory& error) {
      EXPECT_GE(error.facts().reserved, error.facts().allocated);
      outcome = Outcome::kOutOfMemory;
    }
    for (const auto& [pointer, bytes] : blocks) allocator->deallocate(pointer, bytes);
    return outcome;
  }
};

// Flashlight's smallest case of fragmentation: 0.55 M, free it, 0.1 M, 0.55 M. Only 0.65 M are ever live.
class FlashlightCase : public PublishedCase {};

TEST_P(FlashlightCase, EndsAsMeant) {
  EXPECT_EQ(outcome_of({55 * kMiB, 0, 10 * kMiB, 55 * kMiB}), GetParam().outcome);
}

INSTANTIATE_TEST_SUITE_P(
    All, FlashlightCase,
    testing::Values(CaseRow{"grab-all", Outcome::kFits}, CaseRow{"hard-limit", Outcome::kFits},
                    CaseRow{"two-ended", Outcome::kFits}, CaseRow{"arena", Outcome::kFits},
                    CaseRow{"direct", Outcome::kFits}, CaseRow{"mapped", Outcome::kFits},
                    CaseRow{"stream-ordered", Outcome::kFits},
                    // The first region is 64 MiB, the small block lies in it, and 36 are left.
                    CaseRow{"allow-growth", Outcome::kOutOfMemory},
                    // The small block keeps the segment of 56 MiB, and a second one has no room ...
                    CaseRow{"caching", Outcome::kOutOfMemory}, CaseRow{"pool", Outcome::kOutOfMemory},
                    // ... unless such a segment is not to be cut (Flashlight's recycling limit).
                    CaseRow{"caching:max_split=50MiB", Outcome::kFits}),
    case_name);

// PyTorch #1529: a step on batch A and then on the larger B runs out of memory, the other order does not. The
// optimizer's state, made after the first step, stays in place of the first batch.
class BatchOrderCase : public PublishedCase {
 protected:
  static constexpr int64_t kA = 45 * kMiB, kB = 80 * kMiB, kState = 10 * kMiB;
};

TEST_P(BatchOrderCase, SmallBatchFirstEndsAsMeant) {
  EXPECT_EQ(outcome_of({kA, 0, kState, kB}), GetParam().outcome);
}

TEST_P(BatchOrderCase, LargeBatchFirstAlwaysFits) {
  EXPECT_EQ(outcome_of({kB, 0, kState, kA}), Outcome::kFits);
}

INSTANTIATE_TEST_SUITE_P(
    All, BatchOrderCase,
    testing::Values(CaseRow{"grab-all", Outcome::kFits}, CaseRow{"hard-limit", Outcome::kFits},
                    CaseRow{"two-ended", Outcome::kFits}, CaseRow{"arena", Outcome::kFits},
                    CaseRow{"direct", Outcome::kFits}, CaseRow{"mapped", Outcome::kFits},
                    CaseRow{"stream-ordered", Outcome::kFits}, CaseRow{"allow-growth", Outcome::kOutOfMemory},
                    CaseRow{"caching", Outcome::kOutOfMemory}, CaseRow{"pool", Outcome::kOutOfMemory}),
    case_name);

// PyTorch #189504: a block that another stream uses is freed only when that stream is done. The wait after a
// refusal frees it, but its segment is still in use, so nothing is released to the driver: the block must be
// found in the cache.
class PendingBlockCase : public testing::TestWithParam<const char*> {};

TEST_P(PendingBlockCase, IsFoundAfterTheWait) {
  SimulatedGpu gpu(find_profile("card-6gb"));
  StrategySettings settings = parse_strategy(GetParam());
  settings.limit_bytes = 20 * kMiB;  // one of caching's segments
  const auto allocator = make_allocator(settings, gpu);
  const Stream other = gpu.streams().new_stream();
  void* first = allocator->allocate(8 * kMiB);
  void* second = allocator->allocate(8 * kMiB);
  gpu.streams().occupy(other, 1000);
  allocator->record_use(first, other);
  allocator->deallocate(first, 8 * kMiB);
  EXPECT_EQ(allocator->allocate(8 * kMiB), first);
  EXPECT_GE(gpu.streams().now_us(), 1000);
  EXPECT_EQ(allocator->statistics().driver_releases, 0);
  EXPECT_EQ(allocator->statistics().retries, 1);
  allocator->deallocate(first, 8 * kMiB);
  allocator->deallocate(second, 8 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(All, PendingBlockCase,
                         testing::Values("grab-all", "hard-limit", "two-ended", "caching", "arena"),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

bool fits(Allocator& allocator, int64_t bytes) {
  try {
    return allocator.allocate(bytes) != nullptr;
  } catch (const OutOfMemory&) {
    return false;
  }
}

// RMM's ForceGrowth pair: 6000 B upstream. A pool without a maximum finally grows by the needed bytes; one
// with a maximum of 8192 first reserves half of the rest, and has too little left for the second request.
TEST(RmmForceGrowth, WithoutAMaximumTheLastRequestIsOutOfMemory) {
  CpuDevice upstream(6000);
  PoolAllocator pool(upstream, "pool", std::nullopt, 0);
  EXPECT_TRUE(fits(pool, 1000));
  EXPECT_TRUE(fits(pool, 4000));
  EXPECT_TRUE(fits(pool, 500));
  EXPECT_FALSE(fits(pool, 2000));
}

TEST(RmmForceGrowth, WithAMaximumTheSecondRequestIs) {
  CpuDevice upstream(6000);
  PoolAllocator pool(upstream, "pool", Limit{8192}, 0);
  EXPECT_TRUE(fits(pool, 1000));
  EXPECT_FALSE(fits(pool, 4000));
  EXPECT_TRUE(fits(pool, 500));
  EXPECT_TRUE(fits(pool, 2000));
}

// rmm#1957: a pool that starts with 256 B of at most 1024 cannot serve 1024, though nothing is in use. Ours
// gives the idle start back and can; the case without a start is RMM's own way around.
TEST(RmmIdleStart, IsNotInTheWayOfARequestForAll) {
  for (const int64_t initial : {256, 0}) {
    CpuDevice upstream(4096);
    PoolAllocator pool(upstream, "pool", Limit{1024}, initial);
    EXPECT_EQ(pool.statistics().reserved.current, initial);
    EXPECT_TRUE(fits(pool, 1024)) << initial;
    EXPECT_EQ(pool.statistics().reserved.current, 1024);
  }
}

TEST(RmmIdleStart, StaysInTheWayWhileItIsInUse) {
  CpuDevice upstream(4096);
  PoolAllocator pool(upstream, "pool", Limit{1024}, 256);
  EXPECT_TRUE(fits(pool, 100));
  EXPECT_FALSE(fits(pool, 1024));
  EXPECT_TRUE(fits(pool, 768));
}

}  // namespace
}  // namespace headroom
