// Sums between GPUs: the same bits on all, also out of a recording, and an end when one dies.
#include <memory>
#include <thread>

#include "runtime/collective/gpu_collective.h"
#include "runtime/device/host/cpu_device.h"
#include "tests/runtime/device/cuda/gpu_ranks.h"

namespace headroom {
namespace {

struct OverNccl {
  static constexpr bool kOneGpu = false;
  static void require() {
    int gpus = 0;
    for (const PhysicalGpu& gpu : list_gpus().gpus) gpus += gpu.ordinal ? 1 : 0;
    if (gpus < 2) GTEST_SKIP() << "needs two GPUs, there " << (gpus == 1 ? "is one" : "is none");
  }
  static std::unique_ptr<DeviceCollective> make(Device& device, Collective& host) {
    return make_gpu_collective(device, host);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OverNccl, GpuCollectiveContract, OverNccl);

class NcclTest : public testing::Test {
 protected:
  void SetUp() override { OverNccl::require(); }
};

TEST(GpuCollectiveTest, DevicesThatAreNoGpusGetNoneOnAnyRank) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(2)) {
    threads.emplace_back([host = std::move(end)] {
      CpuDevice device;
      EXPECT_EQ(make_gpu_collective(device, *host), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclTest, RanksOnOneGpuGetNone) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(2)) {
    threads.emplace_back([host = std::move(end)] {
      const std::unique_ptr<Device> device = make_cuda_device({});
      EXPECT_EQ(make_gpu_collective(*device, *host), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank 0's GPU waits in a kernel for rank 1, which goes without having made the call.
TEST_F(NcclTest, RankThatDiesEndsAGpuThatWaitsForIt) {
  const auto failures = run_gpu_ranks<OverNccl>(2, [&](DeviceCollective& collective, Device& device) {
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    const DeviceFloats values(device, {1});
    const Stream stream = device.new_stream();
    sum_in_place(collective, values, 1).run(stream);
    device.synchronize(stream);  // returns, with nothing summed
    device.delete_stream(stream);
    collective.check();
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

}  // namespace
}  // namespace headroom
