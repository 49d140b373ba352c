// A real GPU that a ballast makes small: the runtime's behavior when a library or a pool has no room.

#include <memory>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "device/gpus.h"
#include "runtime/app/runtime.h"
#include "runtime/session/start_op.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

constexpr int64_t kTotal = 1 * kGiB;

class SmallCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = make_cuda_device({.total_bytes = kTotal});
  }
  // A pool of nearly all that is free: less than any handle takes is left, and more than the pages that the
  // driver keeps to itself.
  std::unique_ptr<Allocator> grab_everything() {
    return make_allocator({.name = "grab-all", .reserve_bytes = 8 * kMiB}, *device_);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(SmallCudaTest, AnIdlePoolGivesWayToALibrary) {
  const auto allocator = grab_everything();
  with_idle_memory(*allocator, [&] { device_->libraries().start(Library::kBlas); });
  EXPECT_EQ(allocator->statistics().reserved.current, 0);
  EXPECT_EQ(allocator->statistics().driver_releases, 1);
}

TEST_F(SmallCudaTest, APoolInUseMakesOneErrorThatSaysWhoHoldsWhat) {
  const auto allocator = grab_everything();
  void* live = allocator->allocate(kMiB);
  try {
    with_idle_memory(*allocator, [&] { device_->libraries().start(Library::kBlas); });
    FAIL() << "a handle without room";
  } catch (const LibraryError& error) {
    EXPECT_EQ(error.status(), "CUBLAS_STATUS_ALLOC_FAILED");
    ASSERT_TRUE(error.memory().has_value());
    EXPECT_EQ(error.memory()->device_total, kTotal);
    EXPECT_LT(error.memory()->device_free, 64 * kMiB);
    EXPECT_EQ(error.memory()->allocated, kMiB);
    EXPECT_EQ(error.memory()->reserved, allocator->statistics().reserved.current);
    EXPECT_LT(error.memory()->others, 16 * kMiB);  // memory that the driver keeps
  }
  allocator->deallocate(live, kMiB);
}

TEST_F(SmallCudaTest, LibrariesFirstLeaveTheMeasuredReserveAndNothingGuessed) {
  const int64_t reserve = start_libraries(*device_);
  EXPECT_GE(reserve, 2 * device_->memory().granularity_bytes());
  EXPECT_LT(reserve, reserve_for_others_bytes(device_->memory().info().free, device_->compute_capability()));
  const auto allocator = make_allocator({.name = "grab-all", .reserve_bytes = reserve}, *device_);
  void* live = allocator->allocate(kMiB);
  EXPECT_LE(device_->memory().info().free, reserve + 2 * device_->memory().granularity_bytes());
  allocator->deallocate(live, kMiB);
}

TEST_F(SmallCudaTest, ARequestBeyondTheDeviceIsOutOfMemoryWithTheSmallDevicesNumbers) {
  for (const Strategy& strategy : strategies()) {
    const auto allocator =
        make_allocator({.name = std::string(strategy.name), .limit_bytes = 400 * kMiB}, *device_);
    std::vector<void*> blocks;
    try {
      for (;;) blocks.push_back(allocator->allocate(64 * kMiB));
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.facts().device_total, kTotal) << strategy.name;
      EXPECT_EQ(error.facts().requested, 64 * kMiB) << strategy.name;
      EXPECT_EQ(error.facts().device_free, device_->memory().info().free) << strategy.name;
    }
    EXPECT_GE(blocks.size(), 5u) << strategy.name;
    for (void* block : blocks) allocator->deallocate(block, 64 * kMiB);
  }
}

// The memory of the three strategies as nvidia-smi shows it while the same blocks live.
TEST_F(SmallCudaTest, StrategiesTakeDifferentAmountsOfTheCardForTheSameBlocks) {
  const auto peak_of = [&](const StrategySettings& settings) {
    const auto device = make_cuda_device({});
    const auto allocator = make_allocator(settings, *device);
    void* block = allocator->allocate(5 * kMiB);
    const int64_t process = device->memory().info().process;
    allocator->deallocate(block, 5 * kMiB);
    return process;
  };
  const int64_t direct = peak_of({.name = "direct"});
  const int64_t growing = peak_of({.name = "allow-growth"});
  const int64_t limited = peak_of({.name = "hard-limit", .limit_bytes = 100 * kMiB});
  const int64_t all = peak_of({.name = "grab-all"});
  EXPECT_EQ(growing - direct, 2 * kMiB);  // a region of 8 MiB for 5, which cost 6 of pages
  EXPECT_EQ(limited - direct, 94 * kMiB);
  EXPECT_GT(all, limited + kGiB);
}

}  // namespace
}  // namespace headroom
