// Sums between GPUs: the same bits on all, also in a capture, and an error when a rank dies.
#include <algorithm>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "collective/gpu_collective.h"
#include "device/host/cpu_device.h"
#include "tests/device/cuda/gpu_ranks.h"
#include "tests/device/packed_halves.h"

namespace headroom {
namespace {

int visible_gpu_count() {
  int gpus = 0;
  for (const PhysicalGpu& gpu : list_gpus().gpus) gpus += gpu.ordinal ? 1 : 0;
  return gpus;
}

struct OverNccl {
  static constexpr bool kOneGpu = false;
  static void require() {
    const int gpus = visible_gpu_count();
    if (gpus < 2) GTEST_SKIP() << "needs two GPUs, there " << (gpus == 1 ? "is one" : "is none");
  }
  static std::unique_ptr<DeviceCollective> make(Device& device, Collective& host) {
    return make_gpu_collective(device, host);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OverNccl, CudaCollectiveContract, OverNccl);

class CudaNcclTest : public testing::Test {
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

TEST_F(CudaNcclTest, RanksOnOneGpuGetNone) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(2)) {
    threads.emplace_back([host = std::move(end)] {
      const std::unique_ptr<Device> device = make_cuda_device({});
      EXPECT_EQ(make_gpu_collective(*device, *host), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Small calls go through the GPUs' own links, larger ones and those of many tensors through NCCL: no size may
// differ, also when calls follow each other without a wait. The values are whole numbers, so the order of a
// sum changes no bit.
TEST_F(CudaNcclTest, CallsOfEverySizeGiveTheSameSums) {
  const int ranks = std::min(visible_gpu_count(), 8);
  struct Case {
    int64_t elements;
    int tensors;
    bool are_halves = false;  // every second tensor is bf16
  };
  for (const auto& [elements, tensors, are_halves] :
       {Case{1, 1}, Case{3, 5}, Case{1001, 20}, Case{8, 200}, Case{1 << 18, 1}, Case{(1 << 18) + 1, 1},
        Case{3000001, 2}, Case{3, 6, true}, Case{1001, 20, true}, Case{3000001, 2, true}}) {
    SCOPED_TRACE(testing::Message() << tensors << " tensors of " << elements << " elements"
                                    << (are_halves ? ", half of them bf16" : ""));
    run_gpu_ranks_to_the_end<OverNccl>(ranks, [&](DeviceCollective& collective, Device& device) {
      std::vector<float> start(static_cast<size_t>(elements));
      for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i % 13 + collective.rank());
      std::vector<std::unique_ptr<DeviceFloats>> in, out;
      std::vector<DeviceCollective::Term> terms;
      std::vector<std::span<float>> outputs;
      for (int i = 0; i < tensors; ++i) {
        const bool is_half = are_halves && i % 2 == 1;
        const std::vector<float> stored = is_half ? packed_halves(start) : start;
        in.push_back(std::make_unique<DeviceFloats>(device, stored));
        out.push_back(std::make_unique<DeviceFloats>(device, std::vector<float>(stored.size())));
        terms.push_back(
            {in.back()->data(), out.back()->data(), elements, is_half ? DType::kBf16 : DType::kF32});
        outputs.emplace_back(out.back()->data(), stored.size());
      }
      const Stream stream = device.streams().new_stream();
      for (int repeat = 0; repeat < 9; ++repeat) {
        collective.all_reduce_sum(terms, stream);
        collective.all_gather(outputs, stream);  // changes nothing: all ranks have the sums
      }
      device.streams().synchronize(stream);
      collective.check();
      for (size_t tensor = 0; tensor < out.size(); ++tensor) {
        std::vector<float> read = out[tensor]->read();
        if (terms[tensor].dtype == DType::kBf16) read = unpacked_halves(read, start.size());
        for (size_t i = 0; i < read.size(); ++i) {
          ASSERT_EQ(read[i], static_cast<float>(ranks * static_cast<int>(i % 13) + ranks * (ranks - 1) / 2))
              << i;
        }
      }
      device.streams().delete_stream(stream);
    });
  }
}

// Rank 0's GPU waits in a kernel for rank 1, which leaves without making the call.
TEST_F(CudaNcclTest, RankThatDiesEndsAGpuThatWaitsForIt) {
  const auto failures = run_gpu_ranks<OverNccl>(2, [&](DeviceCollective& collective, Device& device) {
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    const DeviceFloats values(device, {1});
    const Stream stream = device.streams().new_stream();
    sum_in_place(collective, values, 1).run(stream);
    device.streams().synchronize(stream);  // returns, with nothing summed
    device.streams().delete_stream(stream);
    collective.check();
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

}  // namespace
}  // namespace headroom
