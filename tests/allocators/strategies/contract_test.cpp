// Promises of every strategy on every device: one row per strategy of the production array and device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

struct Row {
  std::string strategy;  // see parse_strategy
  bool allow_growth;
  TestDeviceKind device;
};

constexpr int64_t kLimit = 96 * kMiB;  // every strategy takes one, and hard-limit needs it

std::vector<Row> rows() {
  std::vector<Row> result;
  for (const auto device : {TestDeviceKind::kCpu, TestDeviceKind::kSimulated,
                            TestDeviceKind::kFaultySimulated, TestDeviceKind::kCuda}) {
    for (const Strategy& strategy : strategies()) {
      for (const bool allow_growth : {false, true}) {
        result.push_back({std::string(strategy.name), allow_growth, device});
      }
    }
    result.push_back({"pytorch,expandable_segments:True", false, device});
  }
  return result;
}

std::string row_name(const testing::TestParamInfo<Row>& info) {
  constexpr const char* kDevices[] = {"cpu", "sim", "faulty", "cuda"};
  std::string name = info.param.strategy + (info.param.allow_growth ? "_growing_" : "_") +
                     kDevices[static_cast<size_t>(info.param.device)];
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

TEST(StrategyTable, EveryStrategyHasASectionInTheDocs) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/docs/strategies.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const Strategy& strategy : strategies()) {
    EXPECT_NE(page.find(fmt::format("\n## {}\n", strategy.name)), std::string::npos) << strategy.name;
  }
}

// Sizes at which a number of 32, 53 or 64 bits ends, on devices that have room for them and that have not.
TEST(StrategySizes, AnyRequestIsServedOrRefusedOnADeviceOfAnySize) {
  for (const Strategy& strategy : strategies()) {
    for (const int total_power : {31, 40, 50, 59}) {
      DeviceProfile profile = small_profile();
      profile.total_bytes = int64_t{1} << total_power;
      SimulatedGpu device(profile, 0, Backing::kNone);
      device.initialize();
      StrategySettings settings{.name = std::string(strategy.name)};
      if (strategy.needs_limit) settings.limit_bytes = profile.total_bytes / 2;
      const auto allocator = make_allocator(settings, device);
      for (const int power : {31, 32, 38, 40, 49, 53, 56, 58, 60, 62}) {
        for (const int64_t more : {-513, -1, 0, 1, 513}) {
          const int64_t bytes = (int64_t{1} << power) + more;
          SCOPED_TRACE(fmt::format("{}: {} bytes of 2^{}", strategy.name, bytes, total_power));
          try {
            void* const small = allocator->allocate(4 * kMiB);
            try {
              void* const block = allocator->allocate(bytes);
              EXPECT_LT(bytes, profile.total_bytes);
              EXPECT_GE(allocator->statistics().allocated.current, bytes + 4 * kMiB);
              allocator->deallocate(block, bytes);
            } catch (const OutOfMemory&) {
            }
            allocator->deallocate(small, 4 * kMiB);
          } catch (const OutOfMemory&) {  // a region that grew holds all there is
          }
          ASSERT_EQ(allocator->statistics().allocated.current, 0);
          ASSERT_LE(device.memory().info().process, profile.total_bytes);
          allocator->trim();
        }
      }
    }
  }
}

class AllocatorContract : public testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (GetParam().device == TestDeviceKind::kCuda) {
      require_cuda();
      if (IsSkipped() || HasFatalFailure()) return;
    }
    device_.emplace(GetParam().device);
    device().initialize();
    base_ = held();
  }

  Device& device() { return device_->device(); }
  int64_t held() { return device().memory().info().process; }
  std::unique_ptr<Allocator> make() {
    StrategySettings settings = parse_strategy(GetParam().strategy);
    settings.limit_bytes = kLimit;
    settings.allow_growth = GetParam().allow_growth;
    return make_allocator(settings, device());
  }

  std::optional<TestDevice> device_;
  int64_t base_ = 0;
};

TEST_P(AllocatorContract, AddressesAreAlignedTo256) {
  const auto allocator = make();
  std::vector<std::pair<void*, int64_t>> blocks;
  for (const int64_t bytes : {1, 255, 256, 257, 4097, 1 << 20, (1 << 20) + 3}) {
    blocks.emplace_back(allocator->allocate(bytes), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().first) % 256, 0u) << bytes;
  }
  for (const auto& [pointer, bytes] : blocks) allocator->deallocate(pointer, bytes);
}

TEST_P(AllocatorContract, BlocksNeverOverlapAndBytesAreConserved) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const auto allocator = make();
    RandomLoad load(*allocator, device_->contents(), seed, 8 * kMiB, 60);
    for (int i = 0; i < 600; ++i) {
      ASSERT_TRUE(load.step()) << "pattern damaged at step " << i << " of seed " << seed;
      const Statistics now = allocator->statistics();
      ASSERT_EQ(now.requested.current, load.live_bytes());
      ASSERT_GE(now.allocated.current, now.requested.current);
      ASSERT_GE(now.reserved.current, now.allocated.current);
      ASSERT_LE(now.reserved.current, kLimit);
      ASSERT_LE(now.largest_free_block, now.reserved.current - now.allocated.current);
      ASSERT_GE(now.fragmentation(), 0);
      ASSERT_LE(now.fragmentation(), 1);
    }
    EXPECT_TRUE(load.finish());
    EXPECT_EQ(allocator->statistics().allocations, load.allocations());
    EXPECT_EQ(allocator->statistics().deallocations, load.allocations());
  }
  EXPECT_EQ(held(), base_);
}

TEST_P(AllocatorContract, WhatIsFreedIsWholeAgainAndGoesBackOnTrim) {
  const auto allocator = make();
  RandomLoad load(*allocator, device_->contents(), 7, 4 * kMiB, 60);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(load.step());
  ASSERT_TRUE(load.finish());
  const Statistics idle = allocator->statistics();
  EXPECT_EQ(idle.requested.current, 0);
  EXPECT_EQ(idle.allocated.current, 0);
  EXPECT_EQ(allocator->trim(), idle.reserved.current);
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
  EXPECT_EQ(allocator->statistics().largest_free_block, 0);
  EXPECT_EQ(held(), base_);
  void* block = allocator->allocate(kMiB);  // and serves again
  allocator->deallocate(block, kMiB);
}

TEST_P(AllocatorContract, StatisticsAreExact) {
  const auto allocator = make();
  void* a = allocator->allocate(1000);
  void* b = allocator->allocate(5000);
  allocator->deallocate(a, 1000);
  void* c = allocator->allocate(300);
  const Statistics now = allocator->statistics();
  EXPECT_EQ(now.requested.current, 5300);
  EXPECT_EQ(now.requested.peak, 6000);
  EXPECT_EQ(now.allocated.current, 5120 + 512);
  EXPECT_EQ(now.allocated.peak, 5120 + 1024);
  EXPECT_EQ(now.allocations, 3);
  EXPECT_EQ(now.deallocations, 1);
  EXPECT_EQ(now.retries, 0);
  EXPECT_EQ(now.failures, 0);
  allocator->deallocate(b, 5000);
  allocator->deallocate(c, 300);
  EXPECT_EQ(allocator->statistics().allocated.current, 0);
  EXPECT_EQ(allocator->name(), parse_strategy(GetParam().strategy).shown_name());
  EXPECT_EQ(allocator->limit_bytes(), kLimit);
}

TEST_P(AllocatorContract, PeaksCountFromTheirResetOn) {
  const auto allocator = make();
  void* a = allocator->allocate(5000);
  void* b = allocator->allocate(1000);
  allocator->deallocate(a, 5000);
  allocator->reset_peaks();
  Statistics now = allocator->statistics();
  EXPECT_EQ(now.requested.peak, 1000);
  for (const Gauge* gauge : {&now.requested, &now.allocated, &now.active, &now.reserved}) {
    EXPECT_EQ(gauge->peak, gauge->current);
  }
  void* c = allocator->allocate(2000);
  allocator->deallocate(c, 2000);
  now = allocator->statistics();
  EXPECT_EQ(now.requested.peak, 3000);
  EXPECT_EQ(now.requested.current, 1000);
  EXPECT_EQ(now.allocations, 3);
  allocator->deallocate(b, 1000);
}

TEST_P(AllocatorContract, ASnapshotIsTheStatisticsPieceByPiece) {
  const auto allocator = make();
  RandomLoad load(*allocator, device_->contents(), 3, 4 * kMiB, 40);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(load.step());
    if (i % 20 != 0) continue;
    const Snapshot snapshot = allocator->snapshot();
    int64_t reserved = 0, active = 0, blocks = 0, largest_free = 0;
    const std::byte* last_end = nullptr;
    for (const SnapshotSegment& segment : snapshot.segments) {
      int64_t bytes = 0;
      for (const SnapshotBlock& block : segment.blocks) {
        ASSERT_GT(block.bytes, 0);
        bytes += block.bytes;
        if (block.state == SnapshotBlock::State::kFree) {
          largest_free = std::max(largest_free, block.bytes);
          EXPECT_EQ(block.requested_bytes, 0);
          continue;
        }
        EXPECT_LE(block.requested_bytes, block.bytes);
        EXPECT_EQ(block.stream, Stream{});
        EXPECT_LE(last_end, block.pointer) << "overlaps the one before";
        last_end = static_cast<const std::byte*>(block.pointer) + block.bytes;
        active += block.bytes;
        ++blocks;
      }
      EXPECT_EQ(bytes, segment.bytes);
      reserved += bytes;
    }
    EXPECT_EQ(reserved, snapshot.statistics.reserved.current);
    EXPECT_EQ(active, snapshot.statistics.allocated.current);
    EXPECT_EQ(blocks, snapshot.statistics.allocations - snapshot.statistics.deallocations);
    EXPECT_LE(largest_free, reserved - active);
  }
  ASSERT_TRUE(load.finish());
}

TEST_P(AllocatorContract, ZeroBytesNullPointersAndNegativeSizes) {
  const auto allocator = make();
  EXPECT_EQ(allocator->allocate(0), nullptr);
  allocator->deallocate(nullptr, 0);
  allocator->deallocate(nullptr, 100);
  EXPECT_THROW(allocator->allocate(-1), InvalidArgument);
  EXPECT_EQ(allocator->statistics().allocations, 0);
  EXPECT_EQ(allocator->statistics().deallocations, 0);
}

TEST_P(AllocatorContract, NoRoomThrowsAndRecovers) {
  const auto allocator = make();
  constexpr int64_t kBytes = 5 * kMiB;
  std::vector<void*> blocks;
  const auto fill = [&] {
    for (;;) blocks.push_back(allocator->allocate(kBytes));
  };
  try {
    fill();
  } catch (const OutOfMemory& error) {
    const MemoryFacts& facts = error.facts();
    EXPECT_EQ(facts.requested, kBytes);
    EXPECT_EQ(facts.strategy, parse_strategy(GetParam().strategy).shown_name());
    EXPECT_EQ(facts.limit, kLimit);
    EXPECT_EQ(facts.device_total, device().memory().info().total);
    EXPECT_EQ(facts.device_free, device().memory().info().free);
    EXPECT_EQ(facts.others, device().memory().info().others);
    EXPECT_GE(facts.allocated, static_cast<int64_t>(blocks.size()) * kBytes);
    EXPECT_LT(facts.largest_free_block, kBytes);
  }
  const Statistics full = allocator->statistics();
  EXPECT_EQ(full.failures, 1);
  EXPECT_GE(blocks.size(), 15u);  // regions of growing size leave some of 96 MiB unused
  for (const int64_t bytes : {kLimit + 1, int64_t{1} << 61, INT64_MAX}) {
    EXPECT_THROW(allocator->allocate(bytes), OutOfMemory);
  }
  EXPECT_EQ(allocator->statistics().allocated.current, full.allocated.current);
  EXPECT_EQ(allocator->statistics().reserved.current, full.reserved.current);
  allocator->deallocate(blocks.back(), kBytes);
  blocks.back() = allocator->allocate(kBytes);
  for (void* block : blocks) allocator->deallocate(block, kBytes);
}

TEST_P(AllocatorContract, DestructionGivesEverythingBack) {
  {
    const auto allocator = make();
    for (const int64_t bytes : {100, 70'000, 3 << 20}) EXPECT_NE(allocator->allocate(bytes), nullptr);
    EXPECT_GT(held(), base_);
  }
  EXPECT_EQ(held(), base_);
}

TEST_P(AllocatorContract, EightThreadsKeepTheirBlocksApart) {
  const auto allocator = make();
  std::atomic<bool> intact = true;
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    threads.emplace_back([this, &allocator, &intact, seed] {
      RandomLoad load(*allocator, device_->contents(), seed, kMiB, 10);
      for (int i = 0; i < 200; ++i) {
        if (!load.step()) intact = false;
      }
      if (!load.finish()) intact = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(intact);
  EXPECT_EQ(allocator->statistics().requested.current, 0);
  EXPECT_EQ(allocator->statistics().allocated.current, 0);
}

TEST_P(AllocatorContract, TheSameCallsGiveTheSameStatistics) {
  std::vector<Statistics> runs;
  for (int run = 0; run < 2; ++run) {
    const auto allocator = make();
    RandomLoad load(*allocator, device_->contents(), 11, 8 * kMiB, 40);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(load.step());
    runs.push_back(allocator->statistics());
    ASSERT_TRUE(load.finish());
  }
  EXPECT_EQ(runs[0].allocated.peak, runs[1].allocated.peak);
  // The size of a GPU's own pool depends on the GPU's progress at the time of each call.
  if (GetParam().device != TestDeviceKind::kCuda || GetParam().strategy != "stream-ordered") {
    EXPECT_EQ(runs[0].reserved.peak, runs[1].reserved.peak);
    EXPECT_EQ(runs[0].largest_free_block, runs[1].largest_free_block);
  }
  EXPECT_EQ(runs[0].driver_allocations, runs[1].driver_allocations);
  EXPECT_EQ(runs[0].failures, runs[1].failures);
}

TEST_P(AllocatorContract, ForeignPointersEndTheProgram) {
  // A fork takes a hundredth of the time of a new process, but CUDA does not survive it.
  const bool is_cuda = GetParam().device == TestDeviceKind::kCuda;
  testing::GTEST_FLAG(death_test_style) = is_cuda ? "threadsafe" : "fast";
  const auto allocator = make();
  void* block = allocator->allocate(1000);
  EXPECT_DEATH(allocator->deallocate(&base_, 1000), "no such live block");
  EXPECT_DEATH(allocator->deallocate(block, 2000), "no such live block");
  allocator->deallocate(block, 1000);
  EXPECT_DEATH(allocator->deallocate(block, 1000), "no such live block");
}

INSTANTIATE_TEST_SUITE_P(Strategies, AllocatorContract, testing::ValuesIn(rows()), row_name);

class AllocatorFaults : public AllocatorContract {
 protected:
  // A fixed run; failed allocations are skipped. False when a pattern was damaged.
  bool run(Allocator& allocator) {
    RandomLoad load(allocator, device_->contents(), 5, 8 * kMiB, 30);
    bool intact = true;
    for (int i = 0; i < 80; ++i) intact &= load.step();
    return load.finish() && intact;
  }
};

TEST_P(AllocatorFaults, EveryDriverCallMayFailOnceWithoutLeak) {
  device_->faults().arm({});
  ASSERT_TRUE(run(*make()));
  const int64_t calls = device_->faults().calls();
  ASSERT_GT(calls, 0);
  for (int64_t n = 1; n <= calls; ++n) {
    device_->faults().arm({.failing_call = n});
    try {
      const auto allocator = make();
      ASSERT_TRUE(run(*allocator)) << "call " << n;
      EXPECT_EQ(allocator->statistics().allocated.current, 0) << "call " << n;
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.facts().allocated, 0) << "call " << n;  // only making the pool may throw here
    }
    ASSERT_EQ(held(), base_) << "call " << n;
  }
}

TEST_P(AllocatorFaults, CapacityThatDropsIsOutOfMemoryUntilItComesBack) {
  const auto allocator = make();
  device_->faults().arm({.drop_call = 1, .drop_bytes = 512 * kMiB});
  std::vector<void*> blocks;
  try {
    for (;;) blocks.push_back(allocator->allocate(4 * kMiB));
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.facts().device_total, 0);
  }
  device_->faults().arm({});
  for (void* block : blocks) allocator->deallocate(block, 4 * kMiB);
  allocator->trim();
  void* block = allocator->allocate(4 * kMiB);
  allocator->deallocate(block, 4 * kMiB);
}

std::vector<Row> faulty_rows() {
  std::vector<Row> result = rows();
  std::erase_if(result, [](const Row& row) { return row.device != TestDeviceKind::kFaultySimulated; });
  return result;
}

INSTANTIATE_TEST_SUITE_P(Strategies, AllocatorFaults, testing::ValuesIn(faulty_rows()), row_name);

}  // namespace
}  // namespace headroom
