// Sums between GPUs: the same bits on all, also out of a recording, and an end when one dies.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/core/cpu/cpu_device.h"
#include "runtime/core/cuda/devices.h"
#include "runtime/core/cuda/gpu_collective.h"
#include "runtime/core/errors.h"
#include "runtime/core/in_process/in_process_collective.h"
#include "runtime/core/shard.h"
#include "tests/core/device_floats.h"

namespace headroom {
namespace {

constexpr int64_t kCount = 100003;

std::vector<float> thirds(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(i) * (rank + 1) % 1009) / 3.0f;
  }
  return values;
}

using Program = std::function<void(DeviceCollective&, Device&)>;

// `program` for each rank in a thread, on a device of its own; what each failed with.
std::vector<std::optional<CollectiveError>> run_on_gpus(int ranks, const Program& program) {
  std::vector<std::optional<CollectiveError>> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(ranks)) {
    threads.emplace_back([&, host = std::move(end)] {
      const std::unique_ptr<Device> device = make_cuda_device({.ordinal = host->rank()});
      device->initialise();
      try {
        const std::unique_ptr<DeviceCollective> collective = make_gpu_collective(*device, *host);
        ASSERT_NE(collective, nullptr) << "NCCL is not usable here";
        program(*collective, *device);
        host->barrier();  // before anybody's end is a death
      } catch (const CollectiveError& error) {
        failures[static_cast<size_t>(host->rank())] = error;
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << host->rank() << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    int gpus = 0;
    for (const PhysicalGpu& gpu : list_gpus().gpus) gpus += gpu.ordinal ? 1 : 0;
    if (gpus < 2) GTEST_SKIP() << "needs two GPUs, there " << (gpus == 1 ? "is one" : "is none");
  }
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

TEST_F(NcclTest, AllRanksGetTheBitsOfTheSum) {
  std::vector<std::vector<float>> results(2);
  const auto failures = run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    EXPECT_EQ(collective.size(), 2);
    const DeviceFloats values(device, thirds(collective.rank(), kCount)), more(device, {1, 2, 3});
    const Stream stream = device.new_stream();
    const DeviceCollective::Term terms[] = {{values.data(), values.data(), kCount},
                                            {more.data(), more.data(), 3}};
    collective.all_reduce_sum(terms, stream);
    device.synchronize(stream);
    collective.check();
    results[static_cast<size_t>(collective.rank())] = values.read();
    EXPECT_EQ(more.read(), (std::vector<float>{2, 4, 6}));
    device.delete_stream(stream);
  });
  for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->what();
  EXPECT_EQ(results[0], results[1]);
  const std::vector<float> first = thirds(0, kCount), second = thirds(1, kCount);
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(results[0][i], first[i] + second[i]) << i;
}

TEST_F(NcclTest, EachRankGetsTheShardsOfTheOthers) {
  run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, thirds(collective.rank(), kCount));
    const Stream stream = device.new_stream();
    const std::span<float> tensors[] = {{values.data(), kCount}};
    collective.all_gather(tensors, stream);
    device.synchronize(stream);
    const std::vector<float> gathered = values.read();
    for (int owner = 0; owner < 2; ++owner) {
      const std::vector<float> expected = thirds(owner, kCount);
      const Shard shard{owner, 2};
      for (int64_t i = shard.begin(kCount); i < shard.end(kCount); ++i) {
        ASSERT_EQ(gathered[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]) << i;
      }
    }
    device.delete_stream(stream);
  });
}

// Each repetition doubles on two ranks: 2^20 after ten of a recording of two.
TEST_F(NcclTest, RecordedSumsAreSummedAtEachLaunch) {
  const auto failures = run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1});
    const Stream stream = device.new_stream();
    const DeviceCollective::Term term{values.data(), values.data(), 1};
    const Task task{.run =
                        [&](Stream on) {
                          collective.all_reduce_sum({&term, 1}, on);
                        },
                    .after = {},
                    .after_previous = {0}};
    task.run(stream);  // what is recorded must have run
    device.synchronize(stream);
    {
      const std::unique_ptr<Recording> recording = device.record({&task, 1}, 2);
      for (int launch = 0; launch < 10; ++launch) recording->launch(stream);
      device.synchronize(stream);
      collective.check();
    }
    EXPECT_EQ(values.read(), std::vector<float>{0x1p21f});
    device.delete_stream(stream);
  });
  for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->what();
}

// Several calls in one graph, as buckets of gradients make them, and other work in between.
TEST_F(NcclTest, ARecordingMayHaveSeveralSums) {
  const auto failures = run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats first(device, {1}), second(device, {1});
    const Stream stream = device.new_stream();
    const auto sum = [&](const DeviceFloats& values) {
      return [&](Stream on) {
        const DeviceCollective::Term term{values.data(), values.data(), 1};
        collective.all_reduce_sum({&term, 1}, on);
      };
    };
    const std::vector<Task> tasks = {
        {sum(first), {}, {0}}, {[](Stream) {}, {}, {1}}, {sum(second), {0, 1}, {2}}, {sum(first), {2}, {3}}};
    for (const Task& task : tasks) task.run(stream);
    device.synchronize(stream);
    {
      const std::unique_ptr<Recording> recording = device.record(tasks, 2);
      recording->launch(stream);
      for (const Task& task : tasks) task.run(stream);
      recording->launch(stream);
      device.synchronize(stream);
      collective.check();
    }
    EXPECT_EQ(first.read(), std::vector<float>{0x1p12f});
    EXPECT_EQ(second.read(), std::vector<float>{0x1p6f});
    device.delete_stream(stream);
  });
  for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->what();
}

// NCCL lets go of a communicator only when no graph has calls of it any more.
TEST_F(NcclTest, ADeathIsToldToARankThatHoldsARecording) {
  const auto failures = run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1});
    const Stream stream = device.new_stream();
    const DeviceCollective::Term term{values.data(), values.data(), 1};
    const Task task{[&](Stream on) { collective.all_reduce_sum({&term, 1}, on); }, {}, {0}};
    task.run(stream);
    device.synchronize(stream);
    const std::unique_ptr<Recording> recording = device.record({&task, 1}, 2);
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    recording->launch(stream);
    device.synchronize(stream);
    device.delete_stream(stream);
    collective.check();
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

// Rank 0's GPU waits in a kernel for rank 1, which goes without having made the call.
TEST_F(NcclTest, RankThatDiesEndsAGpuThatWaitsForIt) {
  const auto failures = run_on_gpus(2, [&](DeviceCollective& collective, Device& device) {
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    const DeviceFloats values(device, {1});
    const Stream stream = device.new_stream();
    const DeviceCollective::Term term{values.data(), values.data(), 1};
    collective.all_reduce_sum({&term, 1}, stream);
    device.synchronize(stream);  // returns, with nothing summed
    device.delete_stream(stream);
    collective.check();
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

}  // namespace
}  // namespace headroom
