#include "device/host/cpu_device.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

TEST(CpuDevice, CapacityIsKeptAndGivenBack) {
  CpuDevice cpu(64 * kMiB);
  void* block = cpu.memory().try_allocate(48 * kMiB);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(cpu.memory().try_allocate(17 * kMiB), nullptr);
  EXPECT_EQ(cpu.memory().info().process, 48 * kMiB);
  cpu.memory().release(block, 48 * kMiB);
  EXPECT_EQ(cpu.memory().info().process, 0);
  EXPECT_EQ(cpu.memory().info().peak_process, 48 * kMiB);
}

TEST(CpuDevice, AddressesAreAlignedTo256) {
  CpuDevice cpu;
  for (const int64_t bytes : {int64_t{1}, int64_t{300}, kMiB - 1, kMiB, 5 * kMiB + 1}) {
    void* block = cpu.memory().try_allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u);
    cpu.memory().release(block, bytes);
  }
}

TEST(CpuDevice, LibrariesTakeNothing) {
  CpuDevice cpu;
  cpu.initialize();
  cpu.libraries().start(Library::kBlas);
  cpu.libraries().load_module("conv2d", Library::kDnn);
  EXPECT_EQ(cpu.memory().info().process, 0);
  EXPECT_EQ(cpu.libraries().pending_bytes(), 0);
  EXPECT_GT(cpu.memory().info().total, 0);
}

TEST(CpuDevice, CapacityBelowOneByteIsRefused) {
  EXPECT_THROW(CpuDevice{0}, InvalidArgument);
  EXPECT_THROW(CpuDevice{-1}, InvalidArgument);
}

}  // namespace
}  // namespace headroom
