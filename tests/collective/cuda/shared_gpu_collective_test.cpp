// Replicas on one GPU: sums in its memory, also in one capture of all, and an error when a rank dies.
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collective/gpu_collective.h"
#include "tests/device/cuda/gpu_ranks.h"
#include "tests/device/packed_halves.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

struct SharedGpu {
  static constexpr bool kOneGpu = true;
  static void require() { require_cuda(); }
  static std::unique_ptr<DeviceCollective> make(Device& device, Collective& host) {
    return make_shared_gpu_collective(device, host);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedGpu, CudaCollectiveContract, SharedGpu);

using CudaSharedGpuTest = CudaTest;

TEST_F(CudaSharedGpuTest, ManyTensorsOfThreeRanksAreSummedInRankOrder) {
  constexpr int kRanks = 3;
  // More tensors than one launch takes, of sizes that are no multiples of four.
  for (int tensors : {1, 70}) {
    run_gpu_ranks_to_the_end<SharedGpu>(kRanks, [&](DeviceCollective& collective, Device& device) {
      std::vector<std::unique_ptr<DeviceFloats>> in, out;
      std::vector<DeviceCollective::Term> terms;
      for (int64_t i = 0; i < tensors; ++i) {
        const int64_t count = i == 0 ? 100003 : i;
        in.push_back(std::make_unique<DeviceFloats>(device, thirds(collective.rank(), count)));
        out.push_back(std::make_unique<DeviceFloats>(device, std::vector<float>(static_cast<size_t>(count))));
        terms.push_back({in.back()->data(), out.back()->data(), count});
      }
      terms.push_back({});
      const Stream stream = device.streams().new_stream();
      collective.all_reduce_sum(terms, stream);
      device.streams().synchronize(stream);
      for (size_t t = 0; t < in.size(); ++t) {
        const std::vector<float> sums = out[t]->read();
        const auto count = static_cast<int64_t>(sums.size());
        const std::vector<float> a = thirds(0, count), b = thirds(1, count), c = thirds(2, count);
        for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], a[i] + b[i] + c[i]) << t << ", " << i;
      }
      device.streams().delete_stream(stream);
    });
  }
}

TEST_F(CudaSharedGpuTest, SumsOfHalvesAreRoundedOnce) {
  run_gpu_ranks_to_the_end<SharedGpu>(3, [](DeviceCollective& collective, Device& device) {
    // 256 + 1 + 1 = 258; rounded after each addition to 8 bits it would stay 256.
    const std::vector<float> own(1003, collective.rank() == 0 ? 256 : 1);
    const DeviceFloats halves(device, packed_halves(own)), floats(device, own);
    const DeviceCollective::Term terms[] = {{halves.data(), halves.data(), 1003, DType::kBf16},
                                            {floats.data(), floats.data(), 1003}};
    const Stream stream = device.streams().new_stream();
    collective.all_reduce_sum(terms, stream);
    device.streams().synchronize(stream);
    EXPECT_EQ(unpacked_halves(halves.read(), 1003), std::vector<float>(1003, 258));
    EXPECT_EQ(floats.read(), std::vector<float>(1003, 258));
    device.streams().delete_stream(stream);
  });
}

// Each repetition sums twice over two ranks; so do eager calls in between.
TEST_F(CudaSharedGpuTest, OneRecordingHasTheWorkOfAllRanks) {
  run_gpu_ranks_to_the_end<SharedGpu>(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1}), copy(device, {0});
    const Stream stream = device.streams().new_stream();
    Task first = sum_in_place(collective, values, 1), second = sum_in_place(collective, values, 1);
    first.after_previous = {2};
    second.after = {0};
    const Task copies{
        .run = [&](Stream on) { device.memory().copy_to_device(copy.data(), values.data(), 4, on); },
        .after = {1},
        .after_previous = {}};
    const std::vector<Task> tasks = {first, second, copies};
    {
      const std::unique_ptr<Capture> recording = collective.capture(device, tasks, 3);
      EXPECT_EQ(values.read(), std::vector<float>{1});
      recording->launch(stream);
      first.run(stream);
      recording->launch(stream);
      device.streams().synchronize(stream);
    }
    EXPECT_EQ(values.read(), std::vector<float>{0x1p13f});
    EXPECT_EQ(copy.read(), values.read());
    device.streams().delete_stream(stream);
  });
}

TEST_F(CudaSharedGpuTest, CallsThatDifferAreRefusedOnAllRanks) {
  const auto failures = run_gpu_ranks<SharedGpu>(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1, 2});
    sum_in_place(collective, values, 1 + collective.rank()).run({});
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->cause(),
              "rank 0 called all_reduce_sum of 1 elements in 1 tensors, rank 1 called all_reduce_sum of 2 "
              "elements in 1 "
              "tensors");
  }
}

TEST_F(CudaSharedGpuTest, RanksWithDevicesOfTheirOwnGetNone) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(2)) {
    threads.emplace_back([host = std::move(end)] {
      const std::unique_ptr<Device> device = make_cuda_device({});
      EXPECT_EQ(make_shared_gpu_collective(*device, *host), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace headroom
