// The driver's own pool as a strategy, on the simulated GPU.
#include <gtest/gtest.h>

#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/stream_ordered_allocator.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"

namespace headroom {
namespace {

class StreamOrdered : public testing::Test {
 protected:
  std::unique_ptr<Allocator> make(const char* text) { return make_allocator(parse_strategy(text), gpu_); }
  int64_t held() { return gpu_.memory().info().process - gpu_.profile().context_bytes; }

  SimulatedGpu gpu_{small_profile()};
};

TEST_F(StreamOrdered, KeepsIdleMemoryByDefault) {
  const auto allocator = make("stream-ordered");
  allocator->deallocate(allocator->allocate(100 * kMiB), 100 * kMiB);
  gpu_.streams().synchronize({});
  EXPECT_EQ(held(), 100 * kMiB);
  EXPECT_EQ(allocator->statistics().reserved.current, 100 * kMiB);
  EXPECT_EQ(allocator->trim(), 100 * kMiB);
  EXPECT_EQ(held(), 0);
}

TEST_F(StreamOrdered, RefusesAPoolLargerThanTheDeviceWithoutADriverCall) {
  const int64_t total = gpu_.memory().info().total;
  EXPECT_NO_THROW(gpu_.memory().make_stream_ordered_pool({.max_bytes = total}));
  EXPECT_THROW(gpu_.memory().make_stream_ordered_pool({.max_bytes = total + 1}), DeviceError);
  EXPECT_NO_THROW(make("stream-ordered"));
}

TEST_F(StreamOrdered, WhatIsAboveTheThresholdGoesBackAtTheNextWaitAndIsReportedSo) {
  for (const auto& [text, kept] : {std::pair{"stream-ordered:release_threshold=0", int64_t{10 * kMiB}},
                                   std::pair{"stream-ordered:release_threshold=64MiB", int64_t{64 * kMiB}}}) {
    const auto allocator = make(text);
    void* live = allocator->allocate(10 * kMiB);
    allocator->deallocate(allocator->allocate(100 * kMiB), 100 * kMiB);
    EXPECT_EQ(allocator->statistics().reserved.current, 110 * kMiB);
    gpu_.streams().synchronize({});
    EXPECT_EQ(allocator->statistics().reserved.current, kept);
    EXPECT_EQ(held(), kept);
    EXPECT_EQ(allocator->statistics().reserved.peak, 110 * kMiB);
    allocator->deallocate(live, 10 * kMiB);
  }
}

TEST_F(StreamOrdered, AnEventThatWasWaitedForIsAWaitToo) {
  const auto allocator = make("stream-ordered:release_threshold=0");
  allocator->deallocate(allocator->allocate(100 * kMiB), 100 * kMiB);
  gpu_.streams().record_event({})->wait();
  EXPECT_EQ(held(), 0);
}

// The driver maps idle pages to new addresses: holes do not count.
TEST_F(StreamOrdered, IdlePagesServeARequestLargerThanEachOfThem) {
  const auto allocator = make("stream-ordered=100MiB");
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocator->allocate(10 * kMiB));
  for (size_t i = 0; i < 10; i += 2) allocator->deallocate(blocks[i], 10 * kMiB);
  void* large = allocator->allocate(50 * kMiB);
  EXPECT_EQ(allocator->statistics().reserved.peak, 100 * kMiB);
  EXPECT_EQ(allocator->statistics().retries, 0);
  EXPECT_EQ(allocator->statistics().fragmentation(), 0);
  EXPECT_THROW(allocator->allocate(1), OutOfMemory);
  allocator->deallocate(large, 50 * kMiB);
  for (size_t i = 1; i < 10; i += 2) allocator->deallocate(blocks[i], 10 * kMiB);
}

TEST_F(StreamOrdered, EveryCallIsTheDriversAndCostsItsTime) {
  const auto allocator = make("stream-ordered");
  allocator->deallocate(allocator->allocate(kMiB), kMiB);
  const double before = gpu_.memory().driver_time_us();
  for (int i = 0; i < 10; ++i) allocator->deallocate(allocator->allocate(kMiB), kMiB);
  EXPECT_DOUBLE_EQ(gpu_.memory().driver_time_us() - before, 10 * (2.1 + 0.9));
  EXPECT_EQ(allocator->statistics().driver_allocations, 11);
}

}  // namespace
}  // namespace headroom
