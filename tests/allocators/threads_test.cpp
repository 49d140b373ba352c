// Promises of every strategy when threads use it at once, each on a stream of its own: exact counts, kept
// limits, and idle memory of one thread that serves another.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "allocators/observer.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"

namespace headroom {
namespace {

constexpr int64_t kThreadsLimit = 96 * kMiB;

// Numbers that are the same in every run (Knuth's MMIX generator).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  int64_t below(int64_t end) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(end));
  }

 private:
  uint64_t state_;
};

class StrategyThreads : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Allocator> make() {
    StrategySettings settings = parse_strategy(GetParam());
    settings.limit_bytes = kThreadsLimit;
    return make_allocator(settings, gpu_);
  }
  std::vector<Stream> streams(int count) {
    std::vector<Stream> result;
    for (int i = 0; i < count; ++i) result.push_back(gpu_.streams().new_stream());
    return result;
  }

  SimulatedGpu gpu_{small_profile()};
};

// Each stream has its own counters, so this tests that they are combined correctly, above all the peaks,
// which no single stream sees.
TEST_P(StrategyThreads, CountsOfSeveralStreamsAreThoseOfOneCounter) {
  const auto allocator = make();
  const std::vector<Stream> all = streams(5);
  struct Live {
    void* pointer;
    int64_t bytes;
    Stream stream;
  };
  std::vector<Live> live;
  Gauge requested;
  int64_t allocations = 0, deallocations = 0;
  Numbers numbers(1);
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 8 || (live.size() < 60 && numbers.below(100) < 50)) {
      const Stream stream = all[static_cast<size_t>(numbers.below(5))];
      const int64_t bytes = 1 + (numbers.below(4) == 0 ? numbers.below(kMiB) : numbers.below(5000));
      live.push_back({allocator->allocate(bytes, stream), bytes, stream});
      requested.add(bytes);
      ++allocations;
    } else {
      std::swap(live[static_cast<size_t>(numbers.below(static_cast<int64_t>(live.size())))], live.back());
      const Live block = live.back();
      live.pop_back();
      // One of eight comes back on another stream than it went to.
      const Stream on = numbers.below(8) == 0 ? all[static_cast<size_t>(numbers.below(5))] : block.stream;
      allocator->deallocate(block.pointer, block.bytes, on);
      requested.add(-block.bytes);
      ++deallocations;
    }
    if (numbers.below(200) != 0) continue;
    const Statistics now = allocator->statistics();
    ASSERT_EQ(now.requested.current, requested.current);
    ASSERT_EQ(now.requested.peak, requested.peak);
    ASSERT_EQ(now.requested.total, requested.total);
    ASSERT_EQ(now.allocations, allocations);
    ASSERT_EQ(now.deallocations, deallocations);
    ASSERT_EQ(now.active.current, now.allocated.current);
    ASSERT_EQ(now.active.peak, now.allocated.peak);
    ASSERT_GE(now.reserved.current, now.allocated.current);
    ASSERT_LE(now.largest_free_block, now.reserved.current - now.allocated.current);
  }
  for (const Live& block : live) allocator->deallocate(block.pointer, block.bytes, block.stream);
  EXPECT_EQ(allocator->statistics().requested.current, 0);
  EXPECT_EQ(allocator->statistics().allocated.current, 0);
}

TEST_P(StrategyThreads, EightThreadsOnTheirStreamsCountExactlyAndKeepTheLimit) {
  const auto allocator = make();
  const std::vector<Stream> all = streams(8);
  std::atomic<int64_t> requested = 0, allocations = 0, beyond = 0;
  std::barrier all_have_stopped(static_cast<std::ptrdiff_t>(all.size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      RandomLoad load(*allocator, gpu_.memory(), static_cast<uint32_t>(i), 4 * kMiB, 12, all[i]);
      for (int step = 0; step < 300; ++step) {
        if (!load.step()) ++beyond;
        if (step % 50 == 0 && allocator->statistics().reserved.peak > kThreadsLimit) ++beyond;
      }
      requested += load.live_bytes();
      all_have_stopped.arrive_and_wait();
      if (!load.finish()) ++beyond;
      allocations += load.allocations();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(beyond, 0) << "damaged patterns, or more reserved than the limit";
  const Statistics now = allocator->statistics();
  EXPECT_EQ(now.allocations, allocations);
  EXPECT_EQ(now.deallocations, allocations);
  EXPECT_EQ(now.requested.current, 0);
  EXPECT_EQ(now.allocated.current, 0);
  EXPECT_EQ(now.active.current, 0);
  EXPECT_GE(now.requested.peak, requested);
  EXPECT_LE(now.reserved.peak, kThreadsLimit);
}

// A thread that has ended, and a stream that nothing uses any more, keep no memory from those that need it.
TEST_P(StrategyThreads, WhatAThreadLeftIdleServesAnother) {
  const auto allocator = make();
  const std::vector<Stream> all = streams(4);
  for (const Stream stream : all) {
    std::thread([&] {
      std::vector<void*> blocks;
      for (int i = 0; i < 10; ++i) blocks.push_back(allocator->allocate(6 * kMiB, stream));
      for (void* block : blocks) allocator->deallocate(block, 6 * kMiB, stream);
    }).join();
  }
  EXPECT_EQ(allocator->statistics().failures, 0);
  EXPECT_LE(allocator->statistics().reserved.peak, kThreadsLimit);
  EXPECT_EQ(allocator->statistics().allocated.current, 0);
  allocator->trim();
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
}

TEST_P(StrategyThreads, AnObserverSeesTheCallsOfAllThreadsFromTheMomentItIsSet) {
  const auto allocator = make();
  const std::vector<Stream> all = streams(4);
  void* before = allocator->allocate(1000, all[0]);
  int64_t live = 0, seen = 0;  // not atomic: the allocator is locked
  allocator->set_observer([&](const AllocatorEvent& event) {
    const bool allocates = event.kind == AllocatorEvent::Kind::kAllocate;
    if (!allocates && event.kind != AllocatorEvent::Kind::kDeallocate) return;
    ++seen;
    live += allocates ? event.requested_bytes : -event.requested_bytes;
  });
  std::vector<std::thread> threads;
  for (const Stream stream : all) {
    threads.emplace_back([&allocator, stream] {
      for (int i = 1; i <= 100; ++i) allocator->deallocate(allocator->allocate(i, stream), i, stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  allocator->set_observer({});
  EXPECT_EQ(seen, 800);
  EXPECT_EQ(live, 0);
  allocator->deallocate(before, 1000, all[0]);
  EXPECT_EQ(seen, 800);
}

// Each thread repeats a load of its own, so that its pages return to their earlier places, while pages move
// between streams if the limit is short.
TEST(MappedThreads, PagesComeBackInEachStreamWhileOthersDoTheSame) {
  for (const int64_t limit : {kThreadsLimit, 3 * kThreadsLimit}) {
    SimulatedGpu gpu(small_profile());
    StrategySettings settings = parse_strategy("mapped");
    settings.limit_bytes = limit;
    const auto allocator = make_allocator(settings, gpu);
    std::atomic<int64_t> damaged = 0;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, stream = gpu.streams().new_stream()] {
        for (int turn = 0; turn < 4; ++turn) {
          RandomLoad load(*allocator, gpu.memory(), i, 6 * kMiB, 12, stream);
          for (int step = 0; step < 100; ++step) damaged += load.step() ? 0 : 1;
          damaged += load.finish() ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(damaged, 0);
    EXPECT_EQ(allocator->statistics().allocated.current, 0);
    EXPECT_LE(allocator->statistics().reserved.peak, limit);
  }
}

TEST(ThreadCache, WhatAStreamKeepsIsIdleServesItAgainAndGoesBackBeforeMemoryRunsOut) {
  SimulatedGpu gpu(small_profile());
  const auto allocator = make_allocator(parse_strategy("direct+limit=16MiB+thread-cache=8MiB"), gpu);
  const Stream one = gpu.streams().new_stream(), two = gpu.streams().new_stream();
  void* block = allocator->allocate(6 * kMiB, one);
  allocator->deallocate(block, 6 * kMiB, one);
  EXPECT_EQ(allocator->statistics().allocated.current, 0);
  EXPECT_EQ(allocator->statistics().reserved.current, 6 * kMiB);
  EXPECT_EQ(allocator->snapshot().segments.at(0).blocks.at(0).state, SnapshotBlock::State::kFree);
  EXPECT_EQ(allocator->allocate(6 * kMiB, one), block);
  EXPECT_EQ(allocator->statistics().driver_allocations, 1);
  allocator->deallocate(block, 6 * kMiB, one);
  void* large = allocator->allocate(12 * kMiB, two);
  EXPECT_EQ(allocator->statistics().driver_releases, 1);
  allocator->deallocate(large, 12 * kMiB, two);  // more than is kept
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
}

TEST(ThreadCache, ABlockThatIsKeptCannotBeGivenBackAgain) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  SimulatedGpu gpu(small_profile());
  const auto allocator = make_allocator(parse_strategy("pool+thread-cache=8MiB"), gpu);
  void* block = allocator->allocate(1000);
  EXPECT_DEATH(allocator->deallocate(block, 2000), "no such live block");
  allocator->deallocate(block, 1000);
  EXPECT_DEATH(allocator->deallocate(block, 1000), "no such live block");
}

std::vector<std::string> strategies_and_caches() {
  std::vector<std::string> result;
  for (const Strategy& strategy : strategies()) {
    result.emplace_back(strategy.name);
    result.push_back(result.back() + "+thread-cache=8MiB");
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, StrategyThreads, testing::ValuesIn(strategies_and_caches()),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '-' || c == '+' || c == '='; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace headroom
