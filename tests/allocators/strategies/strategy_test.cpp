// Tests the differences between strategies, with the numbers of the documents that they follow.
#include "allocators/strategies/strategy.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"
#include "tests/allocators/devices.h"

namespace headroom {
namespace {

// Makes the requests of a convolutional net's first training step.
void first_step(Device& device) {
  device.libraries().start(Library::kDnn);
  device.libraries().load_module("conv2d", Library::kDnn);
  device.libraries().load_module("max_pool", Library::kNone);
  device.libraries().start(Library::kBlas);
  device.libraries().load_module("matmul", Library::kBlas);
}

std::string refusal(const StrategySettings& settings, Device& device) {
  try {
    make_allocator(settings, device);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Strategies, ReserveFollowsFreeMemoryAndComputeCapability) {
  EXPECT_EQ(reserve_for_others_bytes(2 * kGiB - 1, 90), 225 * kMiB);
  EXPECT_EQ(reserve_for_others_bytes(2 * kGiB, 30), 500 * kMiB);
  EXPECT_EQ(reserve_for_others_bytes(2 * kGiB, 61), 500 * kMiB);
  EXPECT_EQ(reserve_for_others_bytes(2 * kGiB, 75), 1050 * kMiB);
  EXPECT_EQ(reserve_for_others_bytes(2 * kGiB, 80), 1536 * kMiB);
  EXPECT_EQ(reserve_for_others_bytes(140 * kGiB, 90), 1536 * kMiB);
}

TEST(Strategies, GrabAllLeaves225MiBOfTheLaptopWhereBlasDoesNotFit) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "grab-all"}, gpu);
  EXPECT_EQ(gpu.memory().info().free, 225 * kMiB);
  EXPECT_EQ(allocator->statistics().reserved.current, 2002 * kMiB - 329 * kMiB - 140 * kMiB - 225 * kMiB);
  void* weights = allocator->allocate(1000);
  gpu.libraries().start(Library::kDnn);
  gpu.libraries().load_module("conv2d", Library::kDnn);
  gpu.libraries().load_module("relu", Library::kNone);
  EXPECT_THROW(gpu.libraries().start(Library::kBlas), LibraryError);
  EXPECT_EQ(allocator->trim(), 0);  // the one region is in use: nothing to give
  allocator->deallocate(weights, 1000);
}

TEST(Strategies, GrabAllLeavesBlasNoRoomBeforeKernelsAreLoadedEither) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "grab-all"}, gpu);
  gpu.libraries().start(Library::kDnn);
  EXPECT_THROW(gpu.libraries().start(Library::kBlas), LibraryError);
}

TEST(Strategies, HardLimitOf1024OnTheLaptopGivesTheDocumentsNumbers) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "hard-limit", .limit_bytes = 1024 * kMiB}, gpu);
  first_step(gpu);
  EXPECT_EQ(gpu.memory().info().process, 1455 * kMiB);
  EXPECT_EQ(gpu.memory().info().used(), 1784 * kMiB);
  EXPECT_EQ(allocator->statistics().driver_allocations, 1);
}

TEST(Strategies, AllowGrowthOnTheLaptopTakesWhatIsNeeded) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "allow-growth"}, gpu);
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
  void* weights = allocator->allocate(kMiB);
  first_step(gpu);
  EXPECT_EQ(gpu.memory().info().process, (431 + 2) * kMiB);
  allocator->deallocate(weights, kMiB);
}

// TensorFlow's growing pool stops at the size of the one reserved at the start.
TEST(Strategies, AllowGrowthLeavesTheSameReserve) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "allow-growth"}, gpu);
  EXPECT_EQ(allocator->limit_bytes(), 1308 * kMiB);
  EXPECT_THROW(allocator->allocate(1308 * kMiB + 1), OutOfMemory);
  allocator->deallocate(allocator->allocate(1308 * kMiB), 1308 * kMiB);
}

TEST(Strategies, GrabAllOfTheH200LeavesAGibibyteAndAHalf) {
  SimulatedGpu gpu(find_profile("h200"));
  const auto allocator = make_allocator({.name = "grab-all"}, gpu);
  EXPECT_EQ(allocator->statistics().reserved.current, (143156 - 263 - 1536) * kMiB);
}

TEST(Strategies, ReserveIsNotTakenFromLessThanItself) {
  DeviceProfile profile = small_profile();
  profile.others_bytes = profile.total_bytes - profile.context_bytes - 200 * kMiB;
  SimulatedGpu gpu(profile);
  const auto allocator = make_allocator({.name = "grab-all"}, gpu);
  EXPECT_EQ(allocator->statistics().reserved.current, 200 * kMiB);
}

TEST(Strategies, MemoryFractionIsOfTheTotalWithoutReserve) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "grab-all", .memory_fraction = 0.5}, gpu);
  EXPECT_EQ(allocator->statistics().reserved.current, 1001 * kMiB);
}

TEST(Strategies, MemoryFractionAboveWhatIsFreeBacksOff) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));  // 1533 MiB free
  const auto allocator = make_allocator({.name = "grab-all", .memory_fraction = 1.0}, gpu);
  EXPECT_EQ(format_mib(allocator->statistics().reserved.current), "1459.5");  // 2002 x 0.9^3
}

TEST(Strategies, GrowthAndLimitCombineEitherWay) {
  for (const StrategySettings& settings :
       {StrategySettings{.name = "allow-growth", .limit_bytes = 100 * kMiB},
        StrategySettings{.name = "hard-limit", .limit_bytes = 100 * kMiB, .allow_growth = true}}) {
    SimulatedGpu gpu(find_profile("laptop-2gb"));
    const auto allocator = make_allocator(settings, gpu);
    EXPECT_EQ(allocator->statistics().reserved.current, 0) << settings.name;
    void* block = allocator->allocate(90 * kMiB);
    EXPECT_EQ(allocator->statistics().reserved.current, 100 * kMiB) << settings.name;
    EXPECT_THROW(allocator->allocate(20 * kMiB), OutOfMemory) << settings.name;
    allocator->deallocate(block, 90 * kMiB);
  }
}

TEST(Strategies, DirectKeepsNothing) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "direct"}, gpu);
  const int64_t base = gpu.memory().info().process;
  for (int i = 0; i < 3; ++i) allocator->deallocate(allocator->allocate(8 * kMiB), 8 * kMiB);
  EXPECT_EQ(gpu.memory().info().process, base);
  EXPECT_EQ(allocator->statistics().driver_allocations, 3);
  EXPECT_EQ(allocator->statistics().driver_releases, 3);
}

// 0.55 M, free it, 0.1 M, 0.55 M of a pool of M: Flashlight's smallest published case of fragmentation. A
// pool in one piece serves it; one that grew keeps a region that the last request does not fit in, until idle
// regions go back.
TEST(Strategies, SmallestPublishedFragmentationCaseFitsInAPoolOfOnePiece) {
  SimulatedGpu gpu(small_profile());
  const auto allocator = make_allocator({.name = "hard-limit", .limit_bytes = 100 * kMiB}, gpu);
  allocator->deallocate(allocator->allocate(55 * kMiB), 55 * kMiB);
  allocator->allocate(10 * kMiB);
  EXPECT_NE(allocator->allocate(55 * kMiB), nullptr);
}

TEST(Strategies, SmallestPublishedFragmentationCaseStrandsAGrowingPool) {
  SimulatedGpu gpu(small_profile());
  const auto allocator = make_allocator({.name = "allow-growth", .limit_bytes = 100 * kMiB}, gpu);
  allocator->allocate(kMiB);  // lies in a region of 2 MiB, which makes the next one the last
  allocator->deallocate(allocator->allocate(55 * kMiB), 55 * kMiB);
  allocator->allocate(10 * kMiB);
  allocator->allocate(30 * kMiB);
  EXPECT_THROW(allocator->allocate(55 * kMiB), OutOfMemory);
}

TEST(Strategies, AMeasuredReserveTakesThePlaceOfTheGuessedOne) {
  for (const int64_t reserve : {int64_t{0}, 7 * kMiB}) {
    SimulatedGpu gpu(small_profile());
    gpu.initialize();
    const int64_t free = gpu.memory().info().free;
    const auto allocator = make_allocator({.name = "grab-all", .reserve_bytes = reserve}, gpu);
    EXPECT_EQ(allocator->limit_bytes(), free - reserve);
  }
}

TEST(ProcessLimit, HoldsAtEveryMomentOfARun) {
  constexpr int64_t kUserLimit = 700 * kMiB;
  for (const Strategy& strategy : strategies()) {
    for (const bool growth : {false, true}) {
      SimulatedGpu gpu(find_profile("laptop-2gb"));
      const auto allocator = make_allocator({.name = std::string(strategy.name),
                                             .limit_bytes = kUserLimit,
                                             .limit_scope = LimitScope::kProcess,
                                             .allow_growth = growth},
                                            gpu);
      RandomLoad load(*allocator, gpu.memory(), 3, 64 * kMiB, 30);
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(load.step());
        if (i == 50) first_step(gpu);
      }
      std::vector<void*> rest;
      EXPECT_THROW(for (;;) rest.push_back(allocator->allocate(4 * kMiB)), OutOfMemory);
      EXPECT_LE(gpu.memory().info().peak_process, kUserLimit) << strategy.name;
      // No strategy gives up while there is room for one more of its steps: caching's segments are of 20 MiB
      // for a block of 4, others request only the block.
      const int64_t step = strategy.name == "caching" ? 20 * kMiB : 4 * kMiB;
      EXPECT_GT(gpu.memory().info().peak_process, kUserLimit - step - 4 * kMiB) << strategy.name;
      for (void* block : rest) allocator->deallocate(block, 4 * kMiB);
      ASSERT_TRUE(load.finish());
    }
  }
}

TEST(ProcessLimit, PoolGetsExactlyWhatLibrariesLeave) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator(
      {.name = "hard-limit", .limit_bytes = 1025 * kMiB, .limit_scope = LimitScope::kProcess}, gpu);
  EXPECT_EQ(allocator->statistics().reserved.current, (1025 - 431) * kMiB);
  EXPECT_EQ(gpu.memory().info().process, (1025 - 431 + 140 + 100 + 130) * kMiB);  // libraries are started
  first_step(gpu);
  EXPECT_EQ(gpu.memory().info().process, 1025 * kMiB);
}

TEST(ProcessLimit, LeavesRoomOnlyForLibrariesThatAreExpected) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const std::array expected = {Library::kNone, Library::kDnn};
  gpu.libraries().expect(expected);
  const auto allocator = make_allocator(
      {.name = "hard-limit", .limit_bytes = 1024 * kMiB, .limit_scope = LimitScope::kProcess}, gpu);
  const DeviceProfile& card = gpu.profile();
  EXPECT_GE(allocator->statistics().reserved.current,
            1022 * kMiB - card.context_bytes - card.bytes_of(expected));
  EXPECT_EQ(gpu.libraries().held_bytes(), card.dnn.handle_bytes) << "no other is started";
}

TEST(ProcessLimit, PagesCountAsTheDriverRoundsThem) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const auto allocator = make_allocator(
      {.name = "hard-limit", .limit_bytes = 1024 * kMiB + 77, .limit_scope = LimitScope::kProcess}, gpu);
  first_step(gpu);
  EXPECT_EQ(gpu.memory().info().process, 1023 * kMiB);  // 593 MiB are left: 296 pages of 2 MiB
}

TEST(ProcessLimit, BelowContextAndLibrariesIsRefusedWithBothNumbers) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const std::string text =
      refusal({.name = "allow-growth", .limit_bytes = 400 * kMiB, .limit_scope = LimitScope::kProcess}, gpu);
  EXPECT_TRUE(mentions(text, "400.00 MiB") && mentions(text, "431.00 MiB")) << text;
}

TEST(ProcessLimit, OfABudgetBelowContextAndLibrariesFailsWithTheFirstRequest) {
  for (const char* name : {"direct", "allow-growth", "caching", "mapped", "pool"}) {
    SimulatedGpu gpu(find_profile("laptop-2gb"));
    const auto allocator = make_allocator({.name = name,
                                           .limit_bytes = 400 * kMiB,
                                           .limit_scope = LimitScope::kProcess,
                                           .limit_is_budget = true},
                                          gpu);
    EXPECT_THROW(allocator->allocate(256), OutOfMemory) << name;
    EXPECT_EQ(allocator->statistics().reserved.peak, 0) << name;
  }
}

TEST(ProcessLimit, ThatLeavesLessThanAPageReportsTheRequest) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  try {
    make_allocator({.name = "hard-limit", .limit_bytes = 432 * kMiB, .limit_scope = LimitScope::kProcess},
                   gpu);
    FAIL() << "a pool of less than a page";
  } catch (const OutOfMemory& error) {
    EXPECT_GT(error.facts().requested, 0);
  }
}

TEST(ProcessLimit, WithoutALimitIsRefused) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  for (const std::optional<double> fraction : {std::optional<double>(), std::optional(0.5)}) {
    const std::string text = refusal(
        {.name = "allow-growth", .limit_scope = LimitScope::kProcess, .memory_fraction = fraction}, gpu);
    EXPECT_TRUE(mentions(text, "there is no limit")) << text;
  }
}

TEST(ProcessLimit, OfAPoolCountsThePoolAlone) {
  CpuDevice cpu(kGiB);
  const auto allocator = make_allocator(
      {.name = "allow-growth", .limit_bytes = 10 * kMiB, .limit_scope = LimitScope::kProcess}, cpu);
  EXPECT_NE(allocator->allocate(10 * kMiB), nullptr);
  EXPECT_THROW(allocator->allocate(1), OutOfMemory);
}

TEST(StrategySettings, UnknownNameListsTheKnownAndSuggestsTheNearest) {
  CpuDevice cpu;
  const std::string text = refusal({.name = "alow-growth"}, cpu);
  EXPECT_TRUE(mentions(text, "'alow-growth'") && mentions(text, "did you mean 'allow-growth'")) << text;
  for (const Strategy& strategy : strategies())
    EXPECT_TRUE(mentions(text, std::string(strategy.name))) << text;
}

TEST(StrategySettings, LimitsOutsideTheDeviceAreRefused) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  const std::string above = refusal({.name = "hard-limit", .limit_bytes = 4 * kGiB}, gpu);
  EXPECT_TRUE(mentions(above, "4.00 GiB") && mentions(above, std::to_string(2002 * kMiB))) << above;
  for (const int64_t limit : {int64_t{0}, int64_t{-5}}) {
    for (const char* name : {"hard-limit", "allow-growth", "grab-all", "direct"}) {
      EXPECT_TRUE(mentions(refusal({.name = name, .limit_bytes = limit}, gpu), std::to_string(limit)))
          << name;
    }
  }
  EXPECT_EQ(gpu.memory().info().process, 0);  // refused before the device was touched
}

TEST(StrategySettings, HardLimitWithoutALimitSaysWhatToPass) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  EXPECT_TRUE(mentions(refusal({.name = "hard-limit"}, gpu), "needs a limit"));
}

TEST(StrategySettings, FractionsOutsideZeroToOneAreRefused) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  for (const double fraction : {0.0, -0.1, 1.01, std::nan("")}) {
    EXPECT_TRUE(mentions(refusal({.name = "grab-all", .memory_fraction = fraction}, gpu), "memory fraction"));
  }
  EXPECT_TRUE(mentions(refusal({.name = "grab-all", .limit_bytes = kMiB, .memory_fraction = 0.5}, gpu),
                       "exclude each other"));
}

TEST(StrategyTable, CuresAreInOrderAndNeedNothingElse) {
  int order = 0;
  for (const Strategy* cure : cures()) {
    EXPECT_GT(cure->cure_order, order) << cure->name;
    order = cure->cure_order;
    EXPECT_FALSE(cure->needs_limit) << cure->name;
    EXPECT_FALSE(cure->takes_all_free_memory) << cure->name;
  }
  EXPECT_EQ(cures().front()->name, "allow-growth");
}

TEST(StrategyTable, APoolOfAllFreeMemoryIsOneWithoutLimitOrGrowth) {
  EXPECT_TRUE(takes_all_free_memory({.name = "grab-all"}));
  EXPECT_FALSE(takes_all_free_memory({.name = "grab-all", .limit_bytes = kGiB}));
  EXPECT_FALSE(takes_all_free_memory({.name = "grab-all", .memory_fraction = 0.5}));
  EXPECT_FALSE(takes_all_free_memory({.name = "grab-all", .allow_growth = true}));
  EXPECT_FALSE(takes_all_free_memory({.name = "caching"}));
  EXPECT_FALSE(takes_all_free_memory({.name = "none of ours"}));
}

}  // namespace
}  // namespace headroom
