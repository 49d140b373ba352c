#include "runtime/device/faulty/faulty_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/device/gpus.h"
#include "runtime/device/host/cpu_device.h"
#include "runtime/device/host/simulated_gpu.h"
#include "runtime/device/host_buffer.h"
#include "tests/require_cuda.h"

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
      [&] { device_.initialise(); },
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
  device_.initialise();
  for (int i = 0; i < 3; ++i) {
    device_.initialise();
    device_.libraries().start(Library::kBlas);
    device_.libraries().load_module("matmul", Library::kBlas);
    device_.libraries().start(Library::kNone);
  }
  EXPECT_EQ(device_.faults().calls(), 3);
}

TEST_F(FaultyDeviceTest, CapacityDropsAtTheCallAndOthersHoldIt) {
  device_.initialise();
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

// Whatever a user may ask of `real`, the faulty one answers the same while no fault is armed.
void expect_stand_in(Device& real) {
  constexpr int64_t kBytes = 4 * kMiB;
  FaultyDevice faulty(real);
  faulty.initialise();
  EXPECT_EQ(faulty.name(), real.name());
  EXPECT_EQ(faulty.description(), real.description());
  EXPECT_EQ(faulty.compute_capability(), real.compute_capability());
  EXPECT_EQ(faulty.kernel_target().gpu, real.kernel_target().gpu);
  EXPECT_EQ(faulty.kernel_target().threads, real.kernel_target().threads);
  EXPECT_EQ(faulty.captures().call_tasks(), real.captures().call_tasks());
  EXPECT_EQ(faulty.libraries().start_with_kernels(), real.libraries().start_with_kernels());
  EXPECT_EQ(faulty.libraries().pending_bytes(), real.libraries().pending_bytes());
  DeviceMemory& memory = faulty.memory();
  EXPECT_EQ(memory.is_host_memory(), real.memory().is_host_memory());
  EXPECT_EQ(memory.granularity_bytes(), real.memory().granularity_bytes());
  EXPECT_EQ(memory.virtual_memory() != nullptr, real.memory().virtual_memory() != nullptr);

  // There and back on two streams, and from a device to itself where devices reach each other.
  const Stream up = faulty.streams().new_stream(), down = faulty.streams().new_stream();
  void* const first = memory.try_allocate(kBytes);
  void* const second = memory.try_allocate(kBytes);
  const HostBuffer from(memory, kBytes), to(memory, kBytes);
  std::memset(from.data(), 7, from.size());
  memory.copy_to_device(first, from.data(), kBytes, up);
  faulty.streams().wait(down, *faulty.streams().record_event(up));
  memory.copy_to_host(to.data(), first, kBytes, down);
  faulty.streams().synchronize(down);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), to.size()), 0);
  EXPECT_EQ(faulty.copy_from(faulty, second, first, kBytes), real.copy_from(real, second, first, kBytes));
  faulty.streams().synchronize({});
  memory.release(second, kBytes);
  memory.release(first, kBytes);
  faulty.streams().delete_stream(up);
  faulty.streams().delete_stream(down);

  const std::unique_ptr<StreamOrderedPool> pool =
      memory.make_stream_ordered_pool({.max_bytes = memory.info().total / 4});
  ASSERT_NE(pool, nullptr);
  faulty.faults().arm({.failing_call = 1});
  EXPECT_EQ(pool->try_allocate(kBytes, {}), nullptr);
  void* const pooled = pool->try_allocate(kBytes, {});
  EXPECT_NE(pooled, nullptr);
  pool->release(pooled, kBytes, {});

  for (const Library library : {Library::kBlas, Library::kDnn}) {
    faulty.faults().arm({.failing_call = 1});
    EXPECT_THROW(faulty.libraries().start(library), LibraryError);
    faulty.libraries().start(library);
  }
}

TEST(FaultyDevices, StandForAnyDevice) {
  CpuDevice cpu;
  expect_stand_in(cpu);
  SimulatedGpu gpu(find_profile("laptop-2gb"));
  expect_stand_in(gpu);
}

TEST_F(CudaTest, FaultyDevicesStandForAGpu) {
  const std::unique_ptr<Device> gpu = make_cuda_device({});
  expect_stand_in(*gpu);
}

}  // namespace
}  // namespace headroom
