// Promises of virtual memory on every device that has it.
#include "device/virtual_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "device/faulty/faulty_device.h"
#include "device/gpus.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

enum class Kind { kCpu, kSimulated, kFaulty, kCuda };

class VirtualMemoryContract : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kCuda) {
      require_cuda();
      if (IsSkipped() || HasFatalFailure()) return;
      real_ = make_cuda_device({});
    } else if (GetParam() == Kind::kCpu) {
      real_ = std::make_unique<CpuDevice>(kGiB);
    } else {
      real_ = make_simulated_gpu("laptop-2gb");
    }
    if (GetParam() == Kind::kFaulty) faulty_ = std::make_unique<FaultyDevice>(*real_);
    device().initialize();
    ASSERT_NE(device().memory().virtual_memory(), nullptr);
    held_before_ = memory().info().process;
    page_ = pages().granularity_bytes();
  }

  Device& device() { return faulty_ ? static_cast<Device&>(*faulty_) : *real_; }
  DeviceMemory& memory() { return device().memory(); }
  VirtualMemory& pages() { return *memory().virtual_memory(); }
  int64_t held() { return memory().info().process - held_before_; }
  void write(void* address, unsigned char value, int64_t bytes) {
    const std::vector<unsigned char> host(static_cast<size_t>(bytes), value);
    memory().copy_to_device(address, host.data(), bytes);
  }
  unsigned char read(void* address) {
    unsigned char value = 0;
    memory().copy_to_host(&value, address, 1);
    return value;
  }
  char* reserve(int64_t bytes) { return static_cast<char*>(pages().try_reserve_range(bytes)); }

  std::unique_ptr<Device> real_;
  std::unique_ptr<FaultyDevice> faulty_;
  int64_t held_before_ = 0;
  int64_t page_ = 0;
};

TEST_P(VirtualMemoryContract, AddressesTakeNothingAndBlocksTakeTheirBytes) {
  char* range = reserve(64 * page_);
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(range) % static_cast<uintptr_t>(page_), 0u);
  EXPECT_EQ(held(), 0);
  const auto one = pages().try_create(page_), three = pages().try_create(3 * page_);
  ASSERT_TRUE(one && three);
  EXPECT_EQ(held(), 4 * page_);
  ASSERT_TRUE(pages().try_map(range + page_, *three));
  EXPECT_EQ(held(), 4 * page_);
  pages().release(*one);
  EXPECT_EQ(held(), 3 * page_);
  pages().unmap(range + page_, *three);
  pages().release(*three);
  pages().release_range(range, 64 * page_);
  EXPECT_EQ(held(), 0);
}

TEST_P(VirtualMemoryContract, BlocksSideBySideAreOneMemory) {
  char* range = reserve(2 * page_);
  const auto first = pages().try_create(page_), second = pages().try_create(page_);
  ASSERT_TRUE(pages().try_map(range, *second) && pages().try_map(range + page_, *first));
  write(range, 5, 2 * page_);
  for (const int64_t at : {int64_t{0}, page_ - 1, page_, 2 * page_ - 1}) EXPECT_EQ(read(range + at), 5) << at;
  pages().unmap(range, *second);
  pages().unmap(range + page_, *first);
  pages().release(*first);
  pages().release(*second);
  pages().release_range(range, 2 * page_);
}

TEST_P(VirtualMemoryContract, ARunIsMappedWhollyOrNotAtAll) {
  char* range = reserve(8 * page_);
  const auto one = pages().try_create(page_), two = pages().try_create(2 * page_);
  ASSERT_TRUE(one && two);
  const std::vector<PhysicalBlock> run = {*one, *two, *one};
  ASSERT_TRUE(pages().try_map_run(range + page_, run));
  write(range + page_, 1, page_);
  write(range + 2 * page_, 2, 2 * page_);
  EXPECT_EQ(read(range + 4 * page_), 1);
  if (faulty_) {
    faulty_->faults().arm({.failing_call = 2});
    EXPECT_FALSE(pages().try_map_run(range + 5 * page_, {run.data(), 2}));
    ASSERT_TRUE(pages().try_map_run(range + 5 * page_, {run.data(), 2}));
    pages().unmap(range + 5 * page_, *one);
    pages().unmap(range + 6 * page_, *two);
  }
  pages().unmap(range + page_, *one);
  pages().unmap(range + 2 * page_, *two);
  pages().unmap(range + 4 * page_, *one);
  pages().release(*one);
  pages().release(*two);
  pages().release_range(range, 8 * page_);
  EXPECT_EQ(held(), 0);
}

TEST_P(VirtualMemoryContract, ABlockKeepsItsContentsWhereverItIsMapped) {
  char* range = reserve(8 * page_);
  const auto block = pages().try_create(2 * page_);
  ASSERT_TRUE(pages().try_map(range, *block));
  write(range, 7, 2 * page_);
  ASSERT_TRUE(pages().try_map(range + 4 * page_, *block));
  EXPECT_EQ(read(range + 4 * page_), 7);  // two views of one memory
  write(range + 6 * page_ - 1, 9, 1);
  EXPECT_EQ(read(range + 2 * page_ - 1), 9);
  pages().unmap(range, *block);
  EXPECT_EQ(read(range + 5 * page_), 7);
  ASSERT_TRUE(pages().try_map(range + page_, *block));
  EXPECT_EQ(read(range + page_), 7);
  pages().unmap(range + page_, *block);
  pages().unmap(range + 4 * page_, *block);
  pages().release(*block);
  pages().release_range(range, 8 * page_);
  EXPECT_EQ(held(), 0);
}

TEST_P(VirtualMemoryContract, AReleasedBlockStaysUntilItsLastMappingGoes) {
  char* range = reserve(2 * page_);
  const auto block = pages().try_create(page_);
  ASSERT_TRUE(pages().try_map(range, *block));
  write(range, 3, page_);
  pages().release(*block);
  EXPECT_EQ(read(range + page_ - 1), 3);
  if (GetParam() != Kind::kCuda) {
    EXPECT_EQ(held(), page_);
  }
  pages().unmap(range, *block);
  EXPECT_EQ(held(), 0);
  pages().release_range(range, 2 * page_);
}

TEST_P(VirtualMemoryContract, MoreThanThereIsGivesNothingAndChangesNothing) {
  EXPECT_FALSE(pages().try_create(round_up(memory().info().total, page_) + page_));
  EXPECT_EQ(held(), 0);
}

TEST_P(VirtualMemoryContract, BlocksAndPlainAllocationsShareOneTotal) {
  if (GetParam() == Kind::kCuda) GTEST_SKIP() << "would take a whole GPU that others may use";
  const auto block = pages().try_create(memory().info().free / page_ * page_);
  ASSERT_TRUE(block);
  EXPECT_LT(memory().info().free, page_);
  EXPECT_EQ(memory().try_allocate(page_), nullptr);
  pages().release(*block);
  void* pointer = memory().try_allocate(page_);
  EXPECT_NE(pointer, nullptr);
  memory().release(pointer, page_);
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  constexpr const char* kNames[] = {"cpu", "sim", "faulty", "cuda"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Devices, VirtualMemoryContract,
                         testing::Values(Kind::kCpu, Kind::kSimulated, Kind::kFaulty, Kind::kCuda),
                         kind_name);

TEST(SimulatedVirtualMemory, CallsTakeTheProfilesTime) {
  DeviceProfile profile = find_profile("h200");
  SimulatedGpu gpu(profile);
  VirtualMemory& pages = *gpu.memory().virtual_memory();
  const VirtualMemoryCosts& costs = profile.virtual_memory;
  const int64_t page = pages.granularity_bytes();
  double expected = 0;
  const auto expect_after = [&](double us) {
    expected += us;
    EXPECT_DOUBLE_EQ(gpu.memory().driver_time_us(), expected);
  };
  void* range = pages.try_reserve_range(kGiB);
  expect_after(10);
  const auto block = pages.try_create(page);
  expect_after(7);
  ASSERT_TRUE(pages.try_map(range, *block));
  expect_after(costs.map.of(page));
  pages.unmap(range, *block);
  expect_after(costs.unmap.of(page));
  pages.release(*block);
  expect_after(costs.release.of(page));
  EXPECT_NEAR(costs.map.of(page), 19.6, 1e-9);
  EXPECT_NEAR(costs.map.of(256 * kMiB), 36.6, 1e-9);
  EXPECT_NEAR(costs.unmap.of(256 * kMiB), 19, 1e-9);
  EXPECT_NEAR(costs.release.of(256 * kMiB), 67, 1e-9);
}

TEST(SimulatedVirtualMemory, MisuseEndsTheProgram) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  VirtualMemory& pages = *gpu.memory().virtual_memory();
  const int64_t page = pages.granularity_bytes();
  char* range = static_cast<char*>(pages.try_reserve_range(4 * page));
  const PhysicalBlock two = pages.try_create(2 * page).value(), one = pages.try_create(page).value();
  ASSERT_TRUE(pages.try_map(range + page, two));
  EXPECT_DEATH(pages.try_map(range + 2 * page, one), "something is mapped there");
  EXPECT_DEATH(pages.try_map(range, two), "something is mapped there");
  EXPECT_DEATH(pages.try_map(range + 3 * page, two), "outside every range");
  EXPECT_DEATH(pages.try_map(range + 4096, one), "not aligned");
  EXPECT_DEATH(pages.unmap(range + 2 * page, two), "no such mapping");
  EXPECT_DEATH(pages.release_range(range, 4 * page), "something is mapped in it");
  EXPECT_DEATH(pages.release_range(range, page), "no such range");
  EXPECT_DEATH(pages.try_create(page + 1), "not a multiple");
  pages.release(one);
  EXPECT_DEATH(pages.release(one), "no such block");
}

TEST(FaultyVirtualMemory, EachCallThatCanFailFailsOnce) {
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  FaultyDevice device(gpu);
  VirtualMemory& pages = *device.memory().virtual_memory();
  const int64_t page = pages.granularity_bytes();
  device.faults().arm({.failing_call = 1});
  EXPECT_EQ(pages.try_reserve_range(page), nullptr);
  void* range = pages.try_reserve_range(page);
  device.faults().arm({.failing_call = 1});
  EXPECT_FALSE(pages.try_create(page));
  const PhysicalBlock block = pages.try_create(page).value();
  device.faults().arm({.failing_call = 1});
  EXPECT_FALSE(pages.try_map(range, block));
  EXPECT_TRUE(pages.try_map(range, block));
  device.faults().arm({.failing_call = 1, .drop_call = 1, .drop_bytes = 64 * kGiB});
  pages.unmap(range, block);  // cannot fail, and does not count
  pages.release(block);
  EXPECT_EQ(device.faults().calls(), 0);
  EXPECT_FALSE(pages.try_create(page));
  EXPECT_FALSE(pages.try_create(page));  // capacity has dropped
  pages.release_range(range, page);
}

}  // namespace
}  // namespace headroom
