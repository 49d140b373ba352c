// Tests the differences of PyTorch's expandable segments from its other ones.
#include <gtest/gtest.h>

#include <vector>

#include "allocators/strategies/expandable_allocator.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"
#include "tests/allocators/helpers.h"
#include "tests/allocators/real_traces.h"

namespace headroom {
namespace {

class Expandable : public testing::Test {
 protected:
  Expandable() { gpu_.initialize(); }

  ExpandableAllocator make(std::optional<Limit> limit = std::nullopt) {
    return ExpandableAllocator(gpu_, "pytorch", limit, {.expandable_segments = true});
  }
  static int64_t reserved(const Allocator& allocator) { return allocator.statistics().reserved.current; }

  SimulatedGpu gpu_{small_profile()};
};

TEST_F(Expandable, LargeBlocksGrowOneSegmentByPagesOf20MiB) {
  ExpandableAllocator allocator = make();
  void* first = allocator.allocate(15 * kMiB);
  EXPECT_EQ(reserved(allocator), 20 * kMiB);
  void* second = allocator.allocate(10 * kMiB);
  EXPECT_EQ(reserved(allocator), 40 * kMiB);
  EXPECT_EQ(distance(first, second), 15 * kMiB);
  EXPECT_EQ(allocator.snapshot().segments.size(), 1u);
}

TEST_F(Expandable, SmallBlocksGrowAnotherOneByPagesOf2MiB) {
  ExpandableAllocator allocator = make();
  allocator.allocate(kMiB);
  allocator.allocate(512);
  EXPECT_EQ(reserved(allocator), 2 * kMiB);
  allocator.allocate(kMiB);
  EXPECT_EQ(reserved(allocator), 4 * kMiB);
  allocator.allocate(kMiB + 1);
  EXPECT_EQ(reserved(allocator), 24 * kMiB);
}

TEST_F(Expandable, AFreeBlockAtTheEndGrowsInsteadOfBeingLeft) {
  ExpandableAllocator allocator = make();
  void* first = allocator.allocate(100 * kMiB);
  allocator.deallocate(first, 100 * kMiB);
  EXPECT_EQ(allocator.allocate(130 * kMiB), first);
  EXPECT_EQ(reserved(allocator), 140 * kMiB);
}

// A block that can grow is kept for requests that need it.
TEST_F(Expandable, AFreeBlockBetweenOthersIsUsedBeforeASmallerOneAtTheEnd) {
  ExpandableAllocator allocator = make();
  void* first = allocator.allocate(60 * kMiB);
  allocator.allocate(20 * kMiB);
  void* last = allocator.allocate(40 * kMiB);
  allocator.deallocate(first, 60 * kMiB);
  allocator.deallocate(last, 40 * kMiB);
  EXPECT_EQ(allocator.allocate(30 * kMiB), first);
}

TEST_F(Expandable, BlocksOfAllSizesAreCutTo512Bytes) {
  ExpandableAllocator allocator = make();
  void* first = allocator.allocate(20 * kMiB);
  allocator.deallocate(first, 20 * kMiB);
  EXPECT_EQ(allocator.allocate(20 * kMiB - kMiB), first);
  EXPECT_EQ(allocator.statistics().allocated.current, 19 * kMiB);
}

TEST_F(Expandable, PagesThatNoBlockTouchesGoBackAndTheirAddressesAreUsedAgain) {
  ExpandableAllocator allocator = make();
  allocator.allocate(25 * kMiB);
  void* middle = allocator.allocate(50 * kMiB);
  allocator.allocate(25 * kMiB);
  allocator.deallocate(middle, 50 * kMiB);
  EXPECT_EQ(reserved(allocator), 100 * kMiB);
  // From 40 to 60 MiB: the other two pages of the block hold parts of its neighbors.
  EXPECT_EQ(allocator.trim(), 20 * kMiB);
  EXPECT_EQ(gpu_.memory().info().process, gpu_.profile().kept_context_bytes() + 80 * kMiB);
  EXPECT_EQ(allocator.snapshot().segments.size(), 2u);
  EXPECT_EQ(allocator.allocate(50 * kMiB), middle);
  EXPECT_EQ(reserved(allocator), 100 * kMiB);
}

TEST_F(Expandable, FreePagesServeALargerRequestWhenTheDeviceIsFull) {
  ExpandableAllocator allocator = make();  // 416 MiB are free
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocator.allocate(40 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) allocator.deallocate(blocks[i], 40 * kMiB);
  EXPECT_NO_THROW(allocator.allocate(200 * kMiB));
  EXPECT_EQ(allocator.statistics().retries, 1);
  EXPECT_EQ(reserved(allocator), 400 * kMiB);
}

TEST_F(Expandable, TheLimitCountsPages) {
  ExpandableAllocator allocator = make(Limit{50 * kMiB});
  allocator.allocate(30 * kMiB);
  EXPECT_THROW(allocator.allocate(12 * kMiB), OutOfMemory);
  EXPECT_EQ(reserved(allocator), 40 * kMiB);
  allocator.allocate(10 * kMiB);
}

TEST_F(Expandable, StreamsHaveSegmentsOfTheirOwn) {
  ExpandableAllocator allocator = make();
  const Stream other = gpu_.streams().new_stream();
  allocator.allocate(kMiB);
  allocator.allocate(kMiB, other);
  EXPECT_EQ(reserved(allocator), 4 * kMiB);
  EXPECT_EQ(allocator.snapshot().segments.size(), 2u);
}

// Peak reserved over the largest live set, as PyTorch 2.11 reserved on an H200.
struct MeasuredTrace {
  const char* trace;
  double ratio;
};

class ExpandableTraces : public testing::TestWithParam<MeasuredTrace> {};

TEST_P(ExpandableTraces, ReserveWhatPyTorchReserves) {
  const std::vector<TraceEvent> events = read_trace(GetParam().trace);
  if (events.empty()) GTEST_SKIP() << "no trace in " << traces_folder();
  const Replay run = replay_allocator(events, [](Device& device) {
    return std::make_unique<ExpandableAllocator>(device, "pytorch", std::nullopt,
                                                 CachingRules{.expandable_segments = true});
  });
  const double reserved = static_cast<double>(run.statistics.reserved.peak);
  EXPECT_NEAR(reserved / static_cast<double>(largest_live_set(events)), GetParam().ratio, 0.0006);
}

INSTANTIATE_TEST_SUITE_P(Traces, ExpandableTraces,
                         testing::Values(MeasuredTrace{"resnet50", 1.033}, MeasuredTrace{"gpt2_train", 1.007},
                                         MeasuredTrace{"deeplab", 1.039}, MeasuredTrace{"gnn", 1.384}),
                         [](const auto& row) { return row.param.trace; });

}  // namespace
}  // namespace headroom
