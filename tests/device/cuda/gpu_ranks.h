// Ranks as threads of one process that sum on GPUs, and the promises of every way to do so.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/shard.h"
#include "collective/in_process/in_process_collective.h"
#include "device/gpus.h"
#include "tests/device/device_floats.h"

namespace headroom {

using GpuRank = std::function<void(DeviceCollective&, Device&)>;

// A way is a struct with
//   static constexpr bool kOneGpu;   // for all ranks; otherwise each rank has its own
//   static void require();           // skips the test if the machine does not support it
//   static std::unique_ptr<DeviceCollective> make(Device&, Collective&);
//
// Runs `work` for each rank in a thread; returns the failures by rank.
template <typename Way>
std::vector<std::optional<CollectiveError>> run_gpu_ranks(int ranks, const GpuRank& work) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int ordinal = 0; ordinal < (Way::kOneGpu ? 1 : ranks); ++ordinal) {
    devices.push_back(make_cuda_device({.ordinal = ordinal}));
  }
  std::vector<std::optional<CollectiveError>> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(ranks)) {
    threads.emplace_back([&, host = std::move(end)] {
      const auto rank = static_cast<size_t>(host->rank());
      Device& device = *devices[Way::kOneGpu ? 0 : rank];
      device.initialize();
      try {
        const std::unique_ptr<DeviceCollective> collective = Way::make(device, *host);
        ASSERT_NE(collective, nullptr) << "this way to sum is not usable here";
        work(*collective, device);
        host->barrier();  // before anybody's end is a death
      } catch (const CollectiveError& error) {
        failures[rank] = error;
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

template <typename Way>
void run_gpu_ranks_to_the_end(int ranks, const GpuRank& work) {
  for (const auto& failure : run_gpu_ranks<Way>(ranks, work)) EXPECT_FALSE(failure) << failure->what();
}

// Returns different values for each rank, with fractions that round.
inline std::vector<float> thirds(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(i) * (rank + 1) % 1009) / 3.0f;
  }
  return values;
}

// The sum of `count` floats in place, as a task that comes after those of the tasks that are named.
inline Task sum_in_place(DeviceCollective& collective, const DeviceFloats& values, int64_t count,
                         std::vector<int> after = {}, std::vector<int> after_previous = {}) {
  return {.run =
              [&collective, &values, count](Stream on) {
                const DeviceCollective::Term term{values.data(), values.data(), count};
                collective.all_reduce_sum({&term, 1}, on);
              },
          .after = std::move(after),
          .after_previous = std::move(after_previous),
          .is_collective = true};
}

template <typename Way>
class CudaCollectiveContract : public testing::Test {
 protected:
  void SetUp() override { Way::require(); }
};
TYPED_TEST_SUITE_P(CudaCollectiveContract);

TYPED_TEST_P(CudaCollectiveContract, AllRanksGetTheBitsOfTheSum) {
  constexpr int64_t kCount = 100003;
  run_gpu_ranks_to_the_end<TypeParam>(2, [&](DeviceCollective& collective, Device& device) {
    EXPECT_EQ(collective.size(), 2);
    const DeviceFloats values(device, thirds(collective.rank(), kCount)), more(device, {1, 2, 3});
    const Stream stream = device.streams().new_stream();
    const DeviceCollective::Term terms[] = {{values.data(), values.data(), kCount},
                                            {more.data(), more.data(), 3}};
    collective.all_reduce_sum(terms, stream);
    device.streams().synchronize(stream);
    collective.check();
    const std::vector<float> sums = values.read();
    const std::vector<float> first = thirds(0, kCount), second = thirds(1, kCount);
    for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(sums[i], first[i] + second[i]) << i;
    EXPECT_EQ(more.read(), (std::vector<float>{2, 4, 6}));
    device.streams().delete_stream(stream);
  });
}

TYPED_TEST_P(CudaCollectiveContract, EachRankGetsTheShardsOfTheOthers) {
  constexpr int64_t kCount = 1001;
  run_gpu_ranks_to_the_end<TypeParam>(2, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, thirds(collective.rank(), kCount));
    const Stream stream = device.streams().new_stream();
    const std::span<float> tensors[] = {{values.data(), kCount}, {}};
    collective.all_gather(tensors, stream);
    device.streams().synchronize(stream);
    collective.check();
    const std::vector<float> gathered = values.read();
    for (int owner = 0; owner < 2; ++owner) {
      const std::vector<float> expected = thirds(owner, kCount);
      const Shard shard{owner, 2};
      for (int64_t i = shard.begin(kCount); i < shard.end(kCount); ++i) {
        ASSERT_EQ(gathered[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]) << i;
      }
    }
    device.streams().delete_stream(stream);
  });
}

// Several calls in one recording, as buckets of gradients make them, with other work in between and calls
// outside of it. Each sum doubles.
TYPED_TEST_P(CudaCollectiveContract, RecordedSumsAreSummedAtEachLaunch) {
  run_gpu_ranks_to_the_end<TypeParam>(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats first(device, {1}), second(device, {1}), copy(device, {0});
    const Stream stream = device.streams().new_stream();
    const Task copies{
        .run = [&](Stream on) { device.memory().copy_to_device(copy.data(), first.data(), 4, on); },
        .after = {2},
        .after_previous = {}};
    const std::vector<Task> tasks = {sum_in_place(collective, first, 1, {}, {3}),
                                     sum_in_place(collective, second, 1, {0}, {1}),
                                     sum_in_place(collective, first, 1, {1}, {}), copies};
    for (const Task& task : tasks) task.run(stream);  // recorded tasks must have run before
    device.streams().synchronize(stream);
    {
      const std::unique_ptr<Capture> recording = collective.capture(device, tasks, 2);
      recording->launch(stream);
      for (const Task& task : tasks) task.run(stream);
      recording->launch(stream);
      device.streams().synchronize(stream);
      collective.check();
    }
    EXPECT_EQ(first.read(), std::vector<float>{0x1p12f});
    EXPECT_EQ(second.read(), std::vector<float>{0x1p6f});
    EXPECT_EQ(copy.read(), first.read());
    device.streams().delete_stream(stream);
  });
}

// NCCL lets go of a communicator only when no graph has calls of it any more.
TYPED_TEST_P(CudaCollectiveContract, ADeathIsToldToARankThatHoldsARecording) {
  const auto failures = run_gpu_ranks<TypeParam>(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1});
    const Stream stream = device.streams().new_stream();
    const Task task = sum_in_place(collective, values, 1, {}, {0});
    task.run(stream);
    device.streams().synchronize(stream);
    const std::unique_ptr<Capture> recording = collective.capture(device, {&task, 1}, 2);
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    recording->launch(stream);
    device.streams().synchronize(stream);
    device.streams().delete_stream(stream);
    collective.check();
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

REGISTER_TYPED_TEST_SUITE_P(CudaCollectiveContract, AllRanksGetTheBitsOfTheSum,
                            EachRankGetsTheShardsOfTheOthers, RecordedSumsAreSummedAtEachLaunch,
                            ADeathIsToldToARankThatHoldsARecording);

}  // namespace headroom
