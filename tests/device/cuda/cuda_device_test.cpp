// Tests a real GPU's memory as reported: whole, and reduced by a ballast.
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "tests/require_cuda.h"

namespace headroom::cuda {
namespace {

using CudaDeviceTest = CudaTest;

void expect_sum(const MemoryInfo& info) {
  EXPECT_EQ(info.process + info.others + info.free, info.total);
  EXPECT_GE(info.process, 0);
  EXPECT_GE(info.others, 0);
  EXPECT_GE(info.peak_used, info.used());
  EXPECT_GE(info.peak_process, info.process);
}

std::string refusal(const CudaSettings& settings) {
  try {
    make_cuda_device(settings)->initialize();
    return "accepted";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST_F(CudaDeviceTest, WhatIsAllocatedIsThisProcessAndGoesBack) {
  CudaDevice device({});
  DeviceMemory& memory = device.memory();
  expect_sum(memory.info());
  device.initialize();
  const MemoryInfo before = memory.info();
  expect_sum(before);
  EXPECT_GT(before.process, 0);  // the context
  for (const int64_t bytes : {int64_t{1}, 3 * kMiB, kGiB}) {
    void* pointer = memory.try_allocate(bytes);
    ASSERT_NE(pointer, nullptr);
    EXPECT_EQ(memory.info().process - before.process, round_up(bytes, memory.granularity_bytes())) << bytes;
    expect_sum(memory.info());
    memory.release(pointer, bytes);
    EXPECT_EQ(memory.info().process, before.process) << bytes;
  }
  EXPECT_GE(memory.info().peak_process, before.process + kGiB);
  EXPECT_GT(device.memory().driver_time_us(), 0);
}

TEST_F(CudaDeviceTest, MoreThanTheCardHasIsNull) {
  CudaDevice device({});
  device.initialize();
  DeviceMemory& memory = device.memory();
  EXPECT_EQ(memory.try_allocate(memory.info().total + 1), nullptr);
  EXPECT_EQ(memory.try_allocate(int64_t{1} << 60), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDeviceTest, HandlesAreMadeOnce) {
  CudaDevice device({});
  device.initialize();
  for (const Library library : {Library::kBlas, Library::kDnn}) {
    const int64_t before = device.memory().info().free;
    device.libraries().start(library);
    const int64_t after = device.memory().info().free;
    EXPECT_LT(after, before);
    EXPECT_GT(after, before - kGiB);
    device.libraries().start(library);
    EXPECT_EQ(device.memory().info().free, after);
  }
}

TEST_F(CudaDeviceTest, AnotherThreadReachesTheSameMemory) {
  CudaDevice device({});
  device.initialize();
  std::thread([&] {
    device.initialize();
    int value = 7, back = 0;
    void* pointer = device.memory().try_allocate(sizeof value);
    device.memory().copy_to_device(pointer, &value, sizeof value);
    device.memory().copy_to_host(&back, pointer, sizeof back);
    device.memory().release(pointer, sizeof value);
    EXPECT_EQ(back, 7);
  }).join();
}

// Streams do not wait for one another: the copy must be complete before another stream reads it.
TEST_F(CudaDeviceTest, ACopyIsDoneWhenItReturns) {
  CudaDevice device({});
  device.initialize();
  constexpr int64_t kCount = 4096, kBytes = kCount * sizeof(int);
  const Stream stream = device.streams().new_stream();
  auto* const back = static_cast<int*>(device.memory().allocate_host(kBytes));
  void* const pointer = device.memory().try_allocate(kBytes);
  for (int i = 0; i < 500; ++i) {
    const std::vector<int> values(kCount, i);
    device.memory().copy_to_device(pointer, values.data(), kBytes);
    device.memory().copy_to_host(back, pointer, kBytes, stream);
    device.streams().synchronize(stream);
    ASSERT_TRUE(std::equal(values.begin(), values.end(), back)) << i;
  }
  device.memory().release(pointer, kBytes);
  device.memory().release_host(back, kBytes);
  device.streams().delete_stream(stream);
}

TEST_F(CudaDeviceTest, ABallastLeavesADeviceOfTheSizeThatWasAskedFor) {
  const int64_t page = 2 * kMiB;
  int64_t free_before = 0;
  {
    CudaDevice whole({});
    whole.initialize();
    free_before = whole.memory().info().free;
  }
  {
    CudaDevice device({.total_bytes = 2002 * kMiB, .others_bytes = 329 * kMiB});
    DeviceMemory& memory = device.memory();
    EXPECT_EQ(memory.info().total, 2002 * kMiB);
    EXPECT_EQ(memory.info().free, (2002 - 329) * kMiB);
    device.initialize();
    const MemoryInfo info = memory.info();
    expect_sum(info);
    EXPECT_EQ(info.total, 2002 * kMiB);
    EXPECT_GE(info.others, 329 * kMiB);
    EXPECT_LE(info.others, 329 * kMiB + 8 * page);  // the driver keeps some for a while
    EXPECT_GT(info.process, 0);
    // All memory reported as free can be allocated except a few pages that the driver keeps, and no more.
    std::vector<void*> blocks;
    while (void* pointer = memory.try_allocate(page)) blocks.push_back(pointer);
    const auto held = static_cast<int64_t>(blocks.size()) * page;
    EXPECT_LE(held, info.free);
    EXPECT_GE(held, info.free - 4 * page);
    expect_sum(memory.info());
    for (void* pointer : blocks) memory.release(pointer, page);
    EXPECT_EQ(memory.info().process, info.process);
  }
  CudaDevice whole({});
  whole.initialize();
  EXPECT_GE(whole.memory().info().free, free_before);
}

TEST_F(CudaDeviceTest, OthersAloneTakeFromTheWholeCard) {
  CudaDevice whole({});
  whole.initialize();
  const int64_t card = whole.memory().info().total;
  CudaDevice device({.others_bytes = 5 * kGiB});
  device.initialize();
  const MemoryInfo info = device.memory().info();
  expect_sum(info);
  EXPECT_EQ(info.total, card);
  EXPECT_GE(info.others, 5 * kGiB);
  EXPECT_LE(info.others, 5 * kGiB + 2 * kMiB);
}

TEST_F(CudaDeviceTest, SizesThatTheCardCannotHaveAreRefusedWithBothNumbers) {
  EXPECT_NE(refusal({.total_bytes = int64_t{1} << 50}).find("the card has"), std::string::npos);
  EXPECT_NE(refusal({.total_bytes = kGiB, .others_bytes = 2 * kGiB}).find("2.00 GiB of a device of 1.00 GiB"),
            std::string::npos);
  EXPECT_NE(refusal({.total_bytes = 64 * kMiB}).find("the context alone takes"), std::string::npos);
  CudaDevice whole({});
  whole.initialize();
  const int64_t total = whole.memory().info().total;
  void* held = whole.memory().try_allocate(4 * kGiB);
  EXPECT_NE(refusal({.total_bytes = total}).find("of the card are free"), std::string::npos);
  whole.memory().release(held, 4 * kGiB);
}

TEST_F(CudaDeviceTest, GpusThatAreNotVisibleAreRefusedInOneLine) {
  for (const int ordinal : {-1, 1000}) {
    const std::string text = refusal({.ordinal = ordinal});
    EXPECT_NE(text.find(std::to_string(ordinal)), std::string::npos);
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::cuda
