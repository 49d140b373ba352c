// Promises of every strategy when several streams use its memory, on a simulated GPU whose work takes time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "allocators/observer.h"
#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"
#include "tests/allocators/helpers.h"

namespace headroom {
namespace {

constexpr int64_t kStreamsLimit = 96 * kMiB;

class StrategyStreams : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Allocator> make() {
    return make_allocator({.name = GetParam(), .limit_bytes = kStreamsLimit}, gpu_);
  }

  SimulatedGpu gpu_{small_profile()};
  const Stream one_ = gpu_.streams().new_stream(), two_ = gpu_.streams().new_stream();
};

TEST_P(StrategyStreams, OneStreamNeverWaits) {
  const auto allocator = make();
  for (int i = 0; i < 20; ++i) {
    void* a = allocator->allocate(kMiB, one_);
    void* b = allocator->allocate(3 * kMiB, one_);
    allocator->deallocate(a, kMiB, one_);
    allocator->deallocate(b, 3 * kMiB, one_);
  }
  EXPECT_EQ(allocator->statistics().stream_waits, 0);
}

// Memory freed on one stream and allocated on another must be used only after the work that still uses it.
TEST_P(StrategyStreams, ReuseOnAnotherStreamFollowsTheWorkOfTheFirst) {
  const auto allocator = make();
  std::set<void*> used;
  for (int i = 0; i < 20; ++i) used.insert(allocator->allocate(4 * kMiB, one_));
  gpu_.streams().occupy(one_, 1000);
  for (void* pointer : used) allocator->deallocate(pointer, 4 * kMiB, one_);
  std::vector<void*> again;
  for (int i = 0; i < 20; ++i) {
    again.push_back(allocator->allocate(4 * kMiB, two_));
    if (!used.contains(again.back())) continue;
    const std::unique_ptr<Event> event = gpu_.streams().record_event(two_);
    EXPECT_TRUE(gpu_.streams().now_us() >= 1000 || !event->done()) << "stream two may run at once";
  }
  // The limit leaves no other memory, at any address.
  const std::unique_ptr<Event> event = gpu_.streams().record_event(two_);
  EXPECT_TRUE(gpu_.streams().now_us() >= 1000 || !event->done()) << "stream two may run at once";
  for (void* pointer : again) allocator->deallocate(pointer, 4 * kMiB, two_);
}

// Merged blocks wait for the streams that used their parts, not for every stream there is.
TEST_P(StrategyStreams, WaitsGrowWithTheBlocksFreedNotWithTheStreams) {
  constexpr int64_t kStreams = 400;
  const auto allocator = make();
  std::vector<Stream> streams;
  for (int64_t i = 0; i < kStreams; ++i) streams.push_back(gpu_.streams().new_stream());
  Random random(11);
  struct Live {
    void* pointer;
    int64_t bytes;
  };
  std::vector<Live> live;
  const auto stream = [&] { return streams[static_cast<size_t>(random.below(kStreams))]; };
  for (int step = 0; step < 6000; ++step) {
    if (live.size() < 100 || (live.size() < 300 && random.below(2) == 0)) {
      const int64_t bytes = 1 + random.below(100'000);
      try {
        live.push_back({allocator->allocate(bytes, stream()), bytes});
        continue;
      } catch (const OutOfMemory&) {  // some strategies cannot share between so many streams
      }
    }
    if (live.empty()) continue;
    std::swap(live[static_cast<size_t>(random.below(static_cast<int64_t>(live.size())))], live.back());
    allocator->deallocate(live.back().pointer, live.back().bytes, stream());
    live.pop_back();
  }
  const Statistics statistics = allocator->statistics();
  EXPECT_LE(statistics.stream_waits, 4 * statistics.deallocations);
  for (const Live& block : live) allocator->deallocate(block.pointer, block.bytes, stream());
}

TEST_P(StrategyStreams, ABlockThatAnotherStreamUsesComesBackWhenThatIsDone) {
  const auto allocator = make();
  void* block = allocator->allocate(40 * kMiB, one_);
  gpu_.streams().occupy(two_, 500);
  allocator->record_use(block, two_);
  allocator->deallocate(block, 40 * kMiB, one_);
  Statistics now = allocator->statistics();
  EXPECT_EQ(now.requested.current, 0);
  EXPECT_EQ(now.active.current - now.allocated.current, 40 * kMiB);
  // There is no room without it: the allocator has to wait.
  void* large = allocator->allocate(80 * kMiB, one_);
  EXPECT_GE(gpu_.streams().now_us(), 500);
  now = allocator->statistics();
  EXPECT_EQ(now.active.current, now.allocated.current);
  EXPECT_EQ(now.retries, 1);
  allocator->deallocate(large, 80 * kMiB, one_);
  EXPECT_EQ(allocator->statistics().active.current, 0);
}

TEST_P(StrategyStreams, ASnapshotShowsPendingBlocksAndTheStreamsThatUseThem) {
  const auto allocator = make();
  void* held = allocator->allocate(4 * kMiB, two_);
  void* block = allocator->allocate(3 * kMiB, one_);
  gpu_.streams().occupy(two_, 500);
  allocator->record_use(block, two_);
  allocator->deallocate(block, 3 * kMiB, one_);
  int found = 0;
  for (const SnapshotSegment& segment : allocator->snapshot().segments) {
    for (const SnapshotBlock& each : segment.blocks) {
      if (each.pointer == held) {
        EXPECT_EQ(each.state, SnapshotBlock::State::kActive);
        EXPECT_EQ(each.stream, two_);
        ++found;
      } else if (each.pointer == block) {
        EXPECT_EQ(each.state, SnapshotBlock::State::kPending);
        EXPECT_EQ(each.stream, one_);
        ++found;
      }
    }
  }
  EXPECT_EQ(found, 2);
  allocator->deallocate(held, 4 * kMiB, two_);
}

TEST_P(StrategyStreams, APendingBlockIsReusedWithoutAWaitOnceItIsDone) {
  const auto allocator = make();
  void* block = allocator->allocate(40 * kMiB, one_);
  gpu_.streams().occupy(two_, 500);
  allocator->record_use(block, two_);
  allocator->deallocate(block, 40 * kMiB, one_);
  gpu_.streams().synchronize(two_);
  void* large = allocator->allocate(80 * kMiB, one_);
  EXPECT_EQ(gpu_.streams().now_us(), 500);
  allocator->deallocate(large, 80 * kMiB, one_);
}

TEST_P(StrategyStreams, TheHandlerMayFreeAndIsCalledABoundedNumberOfTimes) {
  const auto allocator = make();
  void* block = allocator->allocate(60 * kMiB, one_);
  int calls = 0;
  allocator->set_out_of_memory_handler([&](int64_t requested, int attempt) {
    EXPECT_EQ(requested, 60 * kMiB);
    EXPECT_EQ(attempt, ++calls);
    if (attempt == 2) allocator->deallocate(std::exchange(block, nullptr), 60 * kMiB, one_);
    return true;
  });
  void* second = allocator->allocate(60 * kMiB, one_);
  EXPECT_EQ(calls, 2);
  calls = 0;
  EXPECT_THROW(allocator->allocate(60 * kMiB, one_), OutOfMemory);
  EXPECT_EQ(calls, Allocator::kMaxHandlerCalls);
  allocator->deallocate(second, 60 * kMiB, one_);
}

TEST_P(StrategyStreams, TheObserverSeesEveryEventInOrder) {
  const auto allocator = make();
  std::vector<AllocatorEvent> events;
  const auto is_of_a_block = [](const AllocatorEvent& event) {
    using Kind = AllocatorEvent::Kind;
    return event.kind == Kind::kAllocate || event.kind == Kind::kDeallocate ||
           event.kind == Kind::kOutOfMemory;
  };
  allocator->set_observer([&](const AllocatorEvent& event) {
    if (is_of_a_block(event)) events.push_back(event);
  });
  void* block = allocator->allocate(1000, two_);
  EXPECT_THROW(allocator->allocate(200 * kMiB, one_), OutOfMemory);
  allocator->deallocate(block, 1000, two_);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, AllocatorEvent::Kind::kAllocate);
  EXPECT_EQ(events[0].pointer, block);
  EXPECT_EQ(events[0].requested_bytes, 1000);
  EXPECT_EQ(events[0].stream, two_);
  EXPECT_EQ(events[1].kind, AllocatorEvent::Kind::kOutOfMemory);
  EXPECT_EQ(events[1].requested_bytes, 200 * kMiB);
  EXPECT_EQ(events[2].kind, AllocatorEvent::Kind::kDeallocate);
  EXPECT_EQ(events[2].pointer, block);
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> result;
  for (const Strategy& strategy : strategies()) result.emplace_back(strategy.name);
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, StrategyStreams, testing::ValuesIn(strategy_names()), [](const auto& row) {
  std::string name = row.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace headroom
