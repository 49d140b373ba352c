// Tests one segment with two ends: the placement, and how little more than the largest live set it needs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocators/strategies/two_ended_allocator.h"
#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "tests/allocators/helpers.h"
#include "tests/allocators/real_traces.h"

namespace headroom {
namespace {

TEST(TwoEnded, LargeBlocksGrowFromTheLowEndAndSmallOnesFromTheHighEnd) {
  CpuDevice cpu(kGiB);
  TwoEndedAllocator allocator(cpu, "two-ended", Limit{256 * kMiB}, 32 * kMiB);
  void* low = allocator.allocate(32 * kMiB);
  EXPECT_EQ(distance(low, allocator.allocate(kMiB)), 255 * kMiB);
  EXPECT_EQ(distance(low, allocator.allocate(40 * kMiB)), 32 * kMiB);
  EXPECT_EQ(distance(low, allocator.allocate(2 * kMiB)), 253 * kMiB);
}

TEST(TwoEnded, ASmallBlockTakesTheSmallestHoleAndItsHighEnd) {
  CpuDevice cpu(kGiB);
  TwoEndedAllocator allocator(cpu, "two-ended", Limit{256 * kMiB}, 32 * kMiB);
  void* hole = allocator.allocate(32 * kMiB);
  allocator.allocate(33 * kMiB);
  allocator.deallocate(hole, 32 * kMiB);
  EXPECT_EQ(distance(hole, allocator.allocate(kMiB)), 31 * kMiB);
}

TEST(TwoEnded, TakesNineTenthsWhileTheDeviceHasLess) {
  CpuDevice cpu(95 * kMiB);
  TwoEndedAllocator allocator(cpu, "two-ended", Limit{100 * kMiB}, 32 * kMiB);
  EXPECT_EQ(allocator.statistics().reserved.current, 90 * kMiB);
}

// The capacity in multiples of the largest live set at which the trace fits, and from which on it always
// fits: with best fit a larger region is another placement, not a better one.
struct Capacity {
  const char* trace;
  double ratio;
};

class TwoEndedTraces : public testing::TestWithParam<Capacity> {};

TEST_P(TwoEndedTraces, FitInLittleMoreThanTheLargestLiveSet) {
  const auto events = read_trace(GetParam().trace);
  if (events.empty()) GTEST_SKIP() << "no trace in " << traces_folder();
  const auto need = static_cast<double>(largest_live_set(events));
  for (const double more : {0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1.0}) {
    const auto limit = static_cast<int64_t>(need * (GetParam().ratio + more));
    const Replay run = replay(events, {.name = "two-ended", .limit_bytes = limit});
    EXPECT_EQ(run.statistics.failures, 0) << more;
    EXPECT_EQ(run.statistics.driver_allocations, 1) << more;
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, TwoEndedTraces,
                         testing::Values(Capacity{"resnet50", 1.01}, Capacity{"deeplab", 1.02},
                                         Capacity{"gpt2_train", 1.01}, Capacity{"gnn", 1.05}),
                         [](const auto& row) { return row.param.trace; });

}  // namespace
}  // namespace headroom
