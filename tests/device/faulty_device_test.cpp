#include "device/faulty/faulty_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

class FaultyDeviceTest : public testing::Test {
 protected:
  SimulatedGpu gpu_{find_profile("laptop-2gb")};
  FaultyDevice device_{gpu_};
};

TEST_F(FaultyDeviceTest, TheNthDriverCallFailsOnceWithItsOwnError) {
  int word = 0;
  void* block = device_.memory().try_allocate(4);
  DeviceMemory& memory = device_.memory();
  const std::vector<std::function<void()>> calls = {
      [&] { device_.initialize(); },
      [&] { device_.libraries().start(Library::kDnn); },
      [&] { device_.libraries().load_module("conv2d", Library::kDnn); },
      [&] { memory.copy_to_device(block, &word, 4); },
      [&] { memory.copy_to_host(&word, block, 4); },
  };
  device_.faults().arm({.failing_call = 2});
  calls[0]();
  EXPECT_THROW(calls[1](), LibraryError);
  calls[1]();  // fails once
  device_.faults().arm({.failing_call = 1});
  EXPECT_THROW(calls[2](), DeviceError);
  device_.faults().arm({.failing_call = 1});
  EXPECT_THROW(calls[3](), DeviceError);
  device_.faults().arm({.failing_call = 2});
  calls[3]();
  EXPECT_THROW(calls[4](), DeviceError);
  calls[4]();
  device_.faults().arm({.failing_call = 1});
  EXPECT_EQ(memory.try_allocate(512), nullptr);
  memory.release(block, 4);
}

TEST_F(FaultyDeviceTest, RepeatedStartsReachNoDriverAndDoNotCount) {
  device_.initialize();
  for (int i = 0; i < 3; ++i) {
    device_.initialize();
    device_.libraries().start(Library::kBlas);
    device_.libraries().load_module("matmul", Library::kBlas);
    device_.libraries().start(Library::kNone);
  }
  EXPECT_EQ(device_.faults().calls(), 3);
}

TEST_F(FaultyDeviceTest, CapacityDropsAtTheCallAndOthersHoldIt) {
  device_.initialize();
  const MemoryInfo before = device_.memory().info();
  device_.faults().arm({.drop_call = 2, .drop_bytes = 1 * kGiB});
  void* first = device_.memory().try_allocate(2 * kMiB);
  EXPECT_EQ(device_.memory().info().others, before.others);
  void* second = device_.memory().try_allocate(2 * kMiB);
  ASSERT_NE(second, nullptr);
  const MemoryInfo after = device_.memory().info();
  EXPECT_EQ(after.others, before.others + 1 * kGiB);
  EXPECT_EQ(after.free, before.free - 1 * kGiB - 4 * kMiB);
  EXPECT_EQ(device_.memory().try_allocate(after.free + 2 * kMiB), nullptr);
  device_.memory().release(first, 2 * kMiB);
  device_.memory().release(second, 2 * kMiB);
}

}  // namespace
}  // namespace headroom
