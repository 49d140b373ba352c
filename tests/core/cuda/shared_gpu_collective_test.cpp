// Replicas on one GPU: sums in its memory, also out of one recording of all, and an end when one dies.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/core/cuda/devices.h"
#include "runtime/core/cuda/gpu_collective.h"
#include "runtime/core/errors.h"
#include "runtime/core/in_process/in_process_collective.h"
#include "runtime/core/shard.h"
#include "tests/core/device_floats.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

using Rank = std::function<void(DeviceCollective&, Device&)>;

class SharedGpuTest : public CudaTest {
 protected:
  // `work` for each rank in a thread, all on one device; what each failed with.
  std::vector<std::optional<CollectiveError>> run(int ranks, const Rank& work) {
    const std::unique_ptr<Device> device = make_cuda_device({});
    device->initialise();
    std::vector<std::optional<CollectiveError>> failures(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (auto& end : make_in_process_group(ranks)) {
      threads.emplace_back([&, host = std::move(end)] {
        device->initialise();
        try {
          const std::unique_ptr<DeviceCollective> collective = make_shared_gpu_collective(*device, *host);
          ASSERT_NE(collective, nullptr);
          work(*collective, *device);
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
  void run_without_failure(int ranks, const Rank& work) {
    for (const auto& failure : run(ranks, work)) EXPECT_FALSE(failure) << failure->what();
  }
};

std::vector<float> ramp(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(i) * (rank + 1) % 1009) / 3.0f;
  }
  return values;
}

Task sum_of(DeviceCollective& collective, const DeviceFloats& values, int64_t count) {
  return {.run =
              [&collective, &values, count](Stream on) {
                const DeviceCollective::Term term{values.data(), values.data(), count};
                collective.all_reduce_sum({&term, 1}, on);
              },
          .after = {},
          .after_previous = {},
          .is_collective = true};
}

TEST_F(SharedGpuTest, AllRanksGetTheBitsOfTheSumInRankOrder) {
  constexpr int kRanks = 3;
  // More tensors than one launch takes, of sizes that are no multiples of four.
  for (int tensors : {1, 70}) {
    run_without_failure(kRanks, [&](DeviceCollective& collective, Device& device) {
      std::vector<std::unique_ptr<DeviceFloats>> in, out;
      std::vector<DeviceCollective::Term> terms;
      for (int64_t i = 0; i < tensors; ++i) {
        const int64_t count = i == 0 ? 100003 : i;
        in.push_back(std::make_unique<DeviceFloats>(device, ramp(collective.rank(), count)));
        out.push_back(std::make_unique<DeviceFloats>(device, std::vector<float>(static_cast<size_t>(count))));
        terms.push_back({in.back()->data(), out.back()->data(), count});
      }
      terms.push_back({});
      const Stream stream = device.new_stream();
      collective.all_reduce_sum(terms, stream);
      device.synchronize(stream);
      for (size_t t = 0; t < in.size(); ++t) {
        const std::vector<float> sums = out[t]->read();
        const auto count = static_cast<int64_t>(sums.size());
        const std::vector<float> a = ramp(0, count), b = ramp(1, count), c = ramp(2, count);
        for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], a[i] + b[i] + c[i]) << t << ", " << i;
      }
      device.delete_stream(stream);
    });
  }
}

TEST_F(SharedGpuTest, EachRankGetsTheShardsOfTheOthers) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 1001;
  run_without_failure(kRanks, [&](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, ramp(collective.rank(), kCount));
    const std::span<float> tensors[] = {{values.data(), kCount}, {}};
    collective.all_gather(tensors, {});
    device.synchronize({});
    const std::vector<float> gathered = values.read();
    for (int owner = 0; owner < kRanks; ++owner) {
      const std::vector<float> expected = ramp(owner, kCount);
      const Shard shard{owner, kRanks};
      for (int64_t i = shard.begin(kCount); i < shard.end(kCount); ++i) {
        ASSERT_EQ(gathered[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]) << i;
      }
    }
  });
}

// Each repetition sums twice over two ranks; eager calls in between do, too.
TEST_F(SharedGpuTest, OneRecordingHasTheWorkOfAllRanks) {
  run_without_failure(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1}), copy(device, {0});
    const Stream stream = device.new_stream();
    Task first = sum_of(collective, values, 1), second = sum_of(collective, values, 1);
    first.after_previous = {2};
    second.after = {0};
    const Task copies{.run = [&](Stream on) { device.copy_to_device(copy.data(), values.data(), 4, on); },
                      .after = {1},
                      .after_previous = {}};
    const std::vector<Task> tasks = {first, second, copies};
    {
      const std::unique_ptr<Recording> recording = collective.record(device, tasks, 3);
      EXPECT_EQ(values.read(), std::vector<float>{1});
      recording->launch(stream);
      first.run(stream);
      recording->launch(stream);
      device.synchronize(stream);
    }
    EXPECT_EQ(values.read(), std::vector<float>{0x1p13f});
    EXPECT_EQ(copy.read(), values.read());
    device.delete_stream(stream);
  });
}

TEST_F(SharedGpuTest, CallsThatDifferAreRefusedOnAllRanks) {
  const auto failures = run(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1, 2});
    sum_of(collective, values, 1 + collective.rank()).run({});
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->cause(),
              "rank 0 called all_reduce_sum of 1 floats in 1 tensors, rank 1 called all_reduce_sum of 2 "
              "floats in 1 "
              "tensors");
  }
}

TEST_F(SharedGpuTest, ADeathIsToldToARankThatWaits) {
  const auto failures = run(2, [](DeviceCollective& collective, Device& device) {
    const DeviceFloats values(device, {1});
    const Task task = sum_of(collective, values, 1);
    const std::unique_ptr<Recording> recording = collective.record(device, {&task, 1}, 2);
    if (collective.rank() == 1) throw CollectiveError(1, "test", "it dies");
    recording->launch({});
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->cause(), "rank 1 has died");
}

TEST_F(SharedGpuTest, RanksWithDevicesOfTheirOwnGetNone) {
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
