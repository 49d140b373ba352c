// Tests the cost of the lock on all lanes.
#include "allocators/stream_lanes.h"

#include <gtest/gtest.h>

#include <memory>

namespace headroom {
namespace {

// Hands out one address again and again.
class OneBlock final : public StreamLane {
 public:
  using StreamLane::StreamLane;

 private:
  MemoryBlock take(int64_t bytes) override { return {&byte_, bytes}; }
  int64_t give_back(void*, int64_t bytes) noexcept override { return bytes; }

  char byte_ = 0;
};

class Lanes {
 public:
  explicit Lanes(int64_t streams) {
    lanes_.lock();
    for (int64_t i = 0; i < streams; ++i) lanes_.add(std::make_unique<OneBlock>(stream(i)));
    statistics_.requested.peak = statistics_.allocated.peak = statistics_.active.peak = int64_t{1} << 40;
    lanes_.unlock(true);
  }

  static Stream stream(int64_t number) { return {reinterpret_cast<void*>(uintptr_t{64} * (number + 1))}; }
  // Allocates and frees; returns true if the lane served it.
  bool call(int64_t number) {
    const StreamLanes::Taken taken = lanes_.take(256, 256, stream(number));
    return taken.block.pointer != nullptr && lanes_.give_back(taken.block.pointer, 256, 256, stream(number));
  }
  void slow_call(int64_t number) {
    lanes_.lock();
    lanes_.open(stream(number));
    lanes_.unlock(true);
  }
  StreamLanes& lanes() { return lanes_; }
  const Statistics& statistics() const { return statistics_; }

 private:
  Statistics statistics_;
  StreamLanes lanes_{statistics_};
};

TEST(StreamLanes, LocksCostWhatTheCallsCostHoweverManyStreamsThereAre) {
  constexpr int64_t kStreams = 4096, kCalls = 40'000;
  Lanes lanes(kStreams);
  for (int64_t i = 0; i < kCalls; ++i) {
    lanes.call(i * 7 % kStreams);
    lanes.slow_call(i * 13 % kStreams);
  }
  // Twelve times as many as calls at most; every lock would stop 4,096.
  EXPECT_LT(lanes.lanes().lanes_stopped(), 12 * 2 * kCalls);
}

TEST(StreamLanes, AFewLanesStayOpenHoweverRarelyTheyAreUsed) {
  Lanes lanes(8);
  for (int i = 0; i < 1000; ++i) lanes.slow_call(0);
  for (int64_t number = 0; number < 8; ++number) EXPECT_TRUE(lanes.call(number)) << number;
}

TEST(StreamLanes, AClosedLaneOpensWithItsNextSlowCallAndCountsStayExact) {
  constexpr int64_t kStreams = 100;
  Lanes lanes(kStreams);
  for (int i = 0; i < 100; ++i) lanes.slow_call(0);
  EXPECT_FALSE(lanes.call(50));
  lanes.slow_call(50);
  EXPECT_TRUE(lanes.call(50));
  EXPECT_TRUE(lanes.call(50));
  lanes.lanes().lock();
  EXPECT_EQ(lanes.statistics().allocations, 2);
  EXPECT_EQ(lanes.statistics().deallocations, 2);
  EXPECT_EQ(lanes.statistics().requested.current, 0);
  EXPECT_EQ(lanes.statistics().allocated.current, 0);
  lanes.lanes().unlock(true);
}

}  // namespace
}  // namespace headroom
