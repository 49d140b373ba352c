// Playing traces: the verdict on traces whose answers are known.
#include "answers/play.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

const DeviceProfile& h200() {
  return find_profile("h200");
}

Prediction replay_at(const Trace& trace, const StrategySettings& settings, const DeviceProfile& profile,
                     int64_t capacity_bytes, int64_t passes = 1, bool to_last_event = true) {
  return play(traced_here(trace), setup_of_capacity(profile, settings, capacity_bytes),
              {.passes = passes, .to_last_event = to_last_event});
}

std::optional<int64_t> minimum_capacity(const Trace& trace, const StrategySettings& settings,
                                        const DeviceProfile& profile) {
  return least_total_bytes(traced_here(trace), setup_of_capacity(profile, settings, trace.peak_bytes));
}

// Two blocks of 3 MiB with one of 1 MiB between them; then those of 3 go and one of 6 comes.
Trace holes() {
  TraceBuilder builder("holes", "test");
  builder.allocate(0, 3 * kMiB);
  builder.allocate(1, 1 * kMiB);
  builder.allocate(2, 3 * kMiB);
  builder.free(0);
  builder.free(2);
  builder.allocate(3, 6 * kMiB);
  return builder.take();
}

TEST(Play, SaysAtWhichEventMemoryRanOut) {
  const Prediction run = replay_at(holes(), {.name = "grab-all"}, h200(), 8 * kMiB);
  EXPECT_FALSE(run.fits);
  EXPECT_EQ(run.failed_event, 6);
  EXPECT_EQ(run.front().statistics.reserved.peak, 8 * kMiB);
  EXPECT_EQ(run.front().statistics.requested.peak, 7 * kMiB);
  EXPECT_DOUBLE_EQ(run.front().fragmentation, 3.0 / 7);  // free: 3 MiB before the block, 4 after it
}

TEST(Play, SaysWhatWasHeldWhenItFits) {
  const Prediction run = replay_at(holes(), {.name = "direct"}, h200(), 10 * kMiB);
  EXPECT_TRUE(run.fits);
  EXPECT_EQ(run.front().statistics.requested.peak, 7 * kMiB);
  EXPECT_EQ(run.front().statistics.reserved.peak, 7 * kMiB);
  EXPECT_EQ(run.front().statistics.driver_allocations, 4);
  EXPECT_EQ(run.front().statistics.driver_releases, 2);
  EXPECT_GT(run.ns_per_call, 0);
  EXPECT_DOUBLE_EQ(run.driver_time_us, 6 * h200().driver_call_us);
}

TEST(Play, WhatIsNeverFreedIsFreedBetweenPasses) {
  const Prediction run = replay_at(holes(), {.name = "direct"}, h200(), 10 * kMiB, 3);
  EXPECT_TRUE(run.fits);
  EXPECT_EQ(run.front().statistics.allocations, 3 * 4);
  EXPECT_EQ(run.front().statistics.requested.current, 7 * kMiB);
}

// Two blocks of 30 MiB come and go; the cache is emptied there, or not; then one of 20 MiB and one of 40.
TEST(Play, IdleMemoryGoesBackWhereTheProgramEmptiedItsCache) {
  for (const bool empties : {false, true}) {
    TraceBuilder builder("cache", "test");
    builder.allocate(0, 30 * kMiB);
    builder.allocate(1, 30 * kMiB);
    builder.free(0);
    builder.free(1);
    if (empties) builder.add({.kind = DeviceEvent::Kind::kEmptyCache});
    builder.allocate(2, 20 * kMiB);
    builder.allocate(3, 40 * kMiB);
    const Trace trace = builder.take();
    const Prediction run = replay_at(trace, {.name = "caching"}, h200(), kGiB, 2);
    EXPECT_EQ(run.front().statistics.reserved.current, (empties ? 60 : 100) * kMiB);
    EXPECT_EQ(replay_at(trace, {.name = "caching"}, h200(), 60 * kMiB).fits, empties);
    // The place of the largest live set does not matter.
    EXPECT_EQ(run.front().statistics.allocations, 8);
  }
}

TEST(Play, AStrategyThatCannotStartFailsAtEventZero) {
  const Prediction run = replay_at(holes(), {.name = "grab-all"}, h200(), 1);
  EXPECT_EQ(run.failed_event, 0);
}

TEST(Play, CapacityIsAllThatTheStrategyGets) {
  for (const Strategy& strategy : strategies()) {
    const Prediction run = replay_at(holes(), {.name = std::string(strategy.name)}, h200(), 64 * kMiB);
    EXPECT_TRUE(run.fits) << strategy.name;
    EXPECT_LE(run.front().statistics.reserved.peak, 64 * kMiB) << strategy.name;
  }
}

// caching keeps memory of streams apart, so memory that one stream has freed does not serve another.
TEST(Play, StreamsOfATraceAreStreamsOfTheDevice) {
  const auto reserved = [](uint64_t other) {
    TraceBuilder builder("streams", "test");
    for (const uint64_t stream : {uint64_t{7}, other}) {
      builder.allocate(stream, 30 * kMiB, {.stream = stream});
      builder.free(stream, 0, {.stream = stream});
    }
    return replay_at(builder.take(), {.name = "caching"}, h200(), kGiB).front().statistics.reserved.peak;
  };
  EXPECT_EQ(reserved(7), 30 * kMiB);
  EXPECT_EQ(reserved(8), 60 * kMiB);
}

TEST(Play, AStrategyFromOutsideIsPlayedLikeAnyOther) {
  StrategySettings settings{.name = "mine"};
  settings.make = [](const StrategySettings&, Device& device) {
    return make_allocator({.name = "direct"}, device);
  };
  EXPECT_TRUE(replay_at(holes(), settings, h200(), 10 * kMiB).fits);
}

TEST(Play, TracesOfAnySizeNeedNoMemory) {
  TraceBuilder builder("huge", "test");
  for (uint64_t i = 0; i < 100; ++i) builder.allocate(i, kGiB * 1000);
  const Prediction run = replay_at(builder.take(), {.name = "direct"}, h200(), kGiB * 100'000);
  EXPECT_TRUE(run.fits);
}

// Searches play no further.
TEST(Play, WhatFollowsTheLastAllocationChangesNoVerdictAndNoPeak) {
  TraceBuilder builder("freed", "test");
  for (uint64_t i = 0; i < 100; ++i) builder.allocate(i, (1 + static_cast<int64_t>(i) % 7) * kMiB);
  for (uint64_t i = 0; i < 100; i += 2) builder.free(i);
  for (uint64_t i = 100; i < 120; ++i) builder.allocate(i, 5 * kMiB);
  for (uint64_t i = 1; i < 100; i += 2) builder.free(i);
  const Trace trace = builder.take();
  for (const Strategy& strategy : strategies()) {
    StrategySettings settings{.name = std::string(strategy.name)};
    if (strategy.prepare_replay != nullptr) strategy.prepare_replay(trace, settings);
    for (const int64_t capacity : {kGiB, 300 * kMiB}) {
      const Prediction whole = replay_at(trace, settings, h200(), capacity, 2);
      const Prediction trial = replay_at(trace, settings, h200(), capacity, 2, false);
      EXPECT_EQ(trial.failed_event, whole.failed_event) << strategy.name;
      EXPECT_EQ(trial.used_bytes, whole.used_bytes) << strategy.name;
      EXPECT_EQ(trial.front().statistics.reserved.peak, whole.front().statistics.reserved.peak)
          << strategy.name;
      EXPECT_EQ(trial.front().statistics.allocated.peak, whole.front().statistics.allocated.peak)
          << strategy.name;
      EXPECT_EQ(trial.front().fragmentation, whole.front().fragmentation) << strategy.name;
      if (!whole.fits) continue;
      EXPECT_EQ(whole.front().statistics.requested.current, 20 * 5 * kMiB) << strategy.name;
      EXPECT_GT(trial.front().statistics.requested.current, 20 * 5 * kMiB) << strategy.name;
    }
  }
}

// Sizes from 1 KiB to 8 MiB on two streams, with up to 200 blocks live.
Trace mixed(uint32_t seed) {
  TraceBuilder builder("mixed", "test");
  std::mt19937 choose(seed);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  for (uint64_t i = 0; i < 2000; ++i) {
    if (live.size() < 200 && (live.empty() || choose() % 5 < 3)) {
      const uint64_t stream = choose() % 8 == 0 ? 1 : 0;
      builder.allocate(i, kKiB << choose() % 14, {.stream = stream});
      live.emplace_back(i, stream);
    } else {
      std::swap(live[choose() % live.size()], live.back());
      builder.free(live.back().first, 0, {.stream = live.back().second});
      live.pop_back();
    }
  }
  return builder.take();
}

// EdgeTrial::same_from relies on it.
TEST(Play, GoesAlikeInAllThatWasEnoughUnlessTheStrategyDependsOnTheTotal) {
  int alike = 0;
  for (const char* name :
       {"allow-growth", "caching", "pytorch,expandable_segments:True", "pool", "pool:initial=64MiB",
        "stream-ordered", "stream-ordered:release_threshold=1MiB", "direct", "packed"}) {
    const StrategySettings settings = parse_strategy(name);
    ASSERT_FALSE(depends_on_total(settings)) << name;
    for (uint32_t seed = 1; seed <= 8; ++seed) {
      const Trace trace = mixed(seed);
      const Prediction ample = replay_at(trace, settings, h200(), 100 * kGiB, 2);
      ASSERT_TRUE(ample.fits) << name;
      ASSERT_GT(ample.enough_total, 0) << name;
      for (const int64_t more : {int64_t{0}, 2 * kMiB, kGiB}) {
        const Prediction tight = replay_at(trace, settings, h200(), ample.enough_total + more, 2);
        EXPECT_TRUE(tight.fits) << name;
        EXPECT_EQ(tight.enough_total, ample.enough_total) << name;
        EXPECT_EQ(tight.used_bytes, ample.used_bytes) << name;
        EXPECT_EQ(tight.driver_time_us, ample.driver_time_us) << name;
        EXPECT_EQ(tight.front().statistics.reserved.peak, ample.front().statistics.reserved.peak) << name;
        EXPECT_EQ(tight.front().statistics.allocated.peak, ample.front().statistics.allocated.peak) << name;
        EXPECT_EQ(tight.front().fragmentation, ample.front().fragmentation) << name;
      }
      ++alike;
    }
  }
  EXPECT_EQ(alike, 9 * 8);
}

TEST(Play, EveryStrategySaysWhetherItDependsOnTheTotal) {
  for (const Strategy& strategy : strategies()) {
    StrategySettings settings{.name = std::string(strategy.name)};
    EXPECT_EQ(depends_on_total(settings), strategy.depends_on_total) << strategy.name;
    EXPECT_TRUE(strategy.depends_on_total || (!strategy.takes_all_free_memory && !strategy.needs_limit));
    settings.limit_bytes = kGiB;
    EXPECT_TRUE(depends_on_total(settings)) << strategy.name;
  }
}

TEST(MinimumCapacity, IsTheLeastPageAtWhichItFits) {
  for (const Strategy& strategy : strategies()) {
    const StrategySettings settings{.name = std::string(strategy.name)};
    const std::optional<int64_t> least = minimum_capacity(holes(), settings, h200());
    ASSERT_TRUE(least) << strategy.name;
    EXPECT_GE(*least, holes().peak_bytes) << strategy.name;
    const auto fits_in = [&](int64_t capacity_bytes) {
      const Trace trace = holes();
      return fits(traced_here(trace), setup_of_capacity(h200(), settings, capacity_bytes));
    };
    EXPECT_TRUE(fits_in(*least)) << strategy.name;
    EXPECT_FALSE(fits_in(*least - 2 * kMiB)) << strategy.name;
  }
}

TEST(MinimumCapacity, ALimitOfItsOwnIsTheLeastCapacity) {
  const StrategySettings settings{.name = "hard-limit", .limit_bytes = 40 * kMiB};
  EXPECT_EQ(minimum_capacity(holes(), settings, h200()), 40 * kMiB);
}

TEST(MinimumCapacity, ThereIsNoneForALimitThatIsTooSmall) {
  const StrategySettings settings{.name = "hard-limit", .limit_bytes = 2 * kMiB};
  EXPECT_EQ(minimum_capacity(holes(), settings, h200()), std::nullopt);
}

// Uses as many trials as it has, and the one that shows the sufficient capacity.
TEST(MinimumCapacity, OfALongTraceIsFoundByFewReplays) {
  TraceBuilder builder("long", "test");
  constexpr uint64_t kBlocks = 50'000;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    builder.allocate(i, 3 * kMiB);
    if (i >= 100) builder.free(i - 100);
  }
  const Trace trace = builder.take();
  int64_t replays = 0;
  StrategySettings settings{.name = "direct"};
  settings.make = [&](const StrategySettings& asked, Device& device) {
    ++replays;
    StrategySettings plain = asked;
    plain.make = nullptr;
    return make_allocator(plain, device);
  };
  EXPECT_EQ(minimum_capacity(trace, settings, h200()), 101 * 4 * kMiB);  // pages of 2 MiB
  EXPECT_LE(replays, kMaxSearchedEvents / static_cast<int64_t>(trace.events.size()) + 1);
}

}  // namespace
}  // namespace headroom
