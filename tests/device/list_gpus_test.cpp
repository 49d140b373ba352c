#include <gtest/gtest.h>

#include "base/errors.h"
#include "device/cuda/nvml.h"
#include "device/gpus.h"

namespace headroom {
namespace {

TEST(PciBusIds, AreTheSameWithShortDomainsAndInEitherCase) {
  EXPECT_TRUE(cuda::same_pci_bus_id("0000:3b:00.0", "00000000:3B:00.0"));
  EXPECT_TRUE(cuda::same_pci_bus_id("0001:00:06.0", "00000001:00:06.0"));
  EXPECT_FALSE(cuda::same_pci_bus_id("0000:3b:00.0", "0000:3c:00.0"));
  EXPECT_FALSE(cuda::same_pci_bus_id("0000:3b:00.0", "0001:3b:00.0"));
  EXPECT_FALSE(cuda::same_pci_bus_id("", ""));
}

TEST(ListGpus, SaysWhyWhenCudaShowsNone) {
  const GpuList list = list_gpus();
  bool any_visible = false;
  for (const PhysicalGpu& gpu : list.gpus) any_visible = any_visible || gpu.ordinal.has_value();
  EXPECT_EQ(any_visible, list.problem.empty()) << list.problem;
  if (any_visible) return;
  try {
    make_cuda_device({});
    FAIL() << "a device that is not there";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.what(), list.problem);
    EXPECT_EQ(list.problem.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace headroom
