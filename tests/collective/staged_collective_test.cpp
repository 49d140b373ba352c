#include "collective/staged_collective.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/shard.h"
#include "collective/in_process/in_process_collective.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"
#include "tests/device/device_floats.h"
#include "tests/device/packed_halves.h"

namespace headroom {
namespace {

// `program(collective, device)` for each of three ranks, all on one device.
template <typename Program>
void run_three(Device& device, const Program& program) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(3)) {
    threads.emplace_back([&, host = std::move(end)] {
      StagedCollective collective(device, *host);
      program(collective);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class OnDevices : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      device_ = make_simulated_gpu("laptop-2gb", 0);
    } else {
      device_ = std::make_unique<CpuDevice>();
    }
    device_->initialize();
  }
  std::unique_ptr<Device> device_;
};

TEST_P(OnDevices, SumsTensorsOfAllSizesInPlaceAndApart) {
  run_three(*device_, [&](StagedCollective& collective) {
    const auto rank = static_cast<float>(collective.rank());
    const DeviceFloats in_place(*device_, {rank, 10 * rank, 1});
    const DeviceFloats empty(*device_, {});
    const DeviceFloats input(*device_, {100 * rank}), output(*device_, {-1});
    const DeviceCollective::Term terms[] = {{in_place.data(), in_place.data(), 3},
                                            {empty.data(), empty.data(), 0},
                                            {input.data(), output.data(), 1}};
    collective.all_reduce_sum(terms, {});
    EXPECT_EQ(in_place.read(), (std::vector<float>{3, 30, 3}));
    EXPECT_EQ(output.read(), std::vector<float>{300});
    EXPECT_EQ(input.read(), std::vector<float>{100 * rank});
  });
}

TEST_P(OnDevices, SumsOfHalvesAreRoundedOnce) {
  run_three(*device_, [&](StagedCollective& collective) {
    // 256 + 1 + 1 = 258; rounded after each addition to 8 bits it would stay 256.
    const float own = collective.rank() == 0 ? 256 : 1;
    const DeviceFloats halves(*device_, packed_halves({own, 10 * own, -own}));
    const DeviceFloats floats(*device_, {own});
    const DeviceCollective::Term terms[] = {{halves.data(), halves.data(), 3, DType::kBf16},
                                            {floats.data(), floats.data(), 1}};
    collective.all_reduce_sum(terms, {});
    EXPECT_EQ(unpacked_halves(halves.read(), 4), (std::vector<float>{258, 2576, -258, 0}));
    EXPECT_EQ(floats.read(), std::vector<float>{258});
  });
}

TEST_P(OnDevices, GathersEachShardFromItsOwner) {
  const std::vector<size_t> sizes = {1, 63, 200, 0, 1000};
  run_three(*device_, [&](StagedCollective& collective) {
    std::vector<std::unique_ptr<DeviceFloats>> tensors;
    std::vector<std::span<float>> spans;
    for (const size_t size : sizes) {
      const std::vector<float> values(size, static_cast<float>(collective.rank()));
      tensors.push_back(std::make_unique<DeviceFloats>(*device_, values));
      spans.emplace_back(tensors.back()->data(), size);
    }
    collective.all_gather(spans, {});
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<float> got = tensors[i]->read();
      for (int owner = 0; owner < 3; ++owner) {
        const Shard shard{owner, 3};
        for (int64_t at = shard.begin(std::ssize(got)); at < shard.end(std::ssize(got)); ++at) {
          ASSERT_EQ(got[static_cast<size_t>(at)], static_cast<float>(owner)) << i << " " << at;
        }
      }
    }
  });
}

TEST_P(OnDevices, ADeadRankEndsTheCallsOfTheOthers) {
  run_three(*device_, [&](StagedCollective& collective) {
    if (collective.rank() == 1) return;
    const DeviceFloats values(*device_, {1});
    const DeviceCollective::Term term{values.data(), values.data(), 1};
    EXPECT_THROW(collective.all_reduce_sum({&term, 1}, {}), CollectiveError);
    EXPECT_EQ(values.read(), std::vector<float>{1});
  });
}

INSTANTIATE_TEST_SUITE_P(StagedCollective, OnDevices, testing::Bool(),
                         [](const auto& row) { return row.param ? "SimulatedGpu" : "Cpu"; });

// `program(collectives, devices)` for each of two ranks with two simulated GPUs each.
template <typename Program>
void run_two_on_two(const Program& program) {
  std::vector<std::thread> threads;
  for (auto& end : make_in_process_group(2)) {
    threads.emplace_back([&, host = std::move(end)] {
      const auto first = make_simulated_gpu("laptop-2gb", 0), second = make_simulated_gpu("laptop-2gb", 1);
      const std::vector<Device*> devices = {first.get(), second.get()};
      for (Device* device : devices) device->initialize();
      program(make_device_collectives(devices, *host), devices);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StagedCollectives, EachDeviceOfARankSumsWithItsLikeInTheOthers) {
  run_two_on_two([](const auto& collectives, const std::vector<Device*>& devices) {
    ASSERT_EQ(collectives.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const auto rank = static_cast<float>(collectives[i]->rank());
      EXPECT_EQ(collectives[i]->size(), 2);
      EXPECT_EQ(collectives[i]->transport(), "host");
      // Not as many of them on each.
      const DeviceFloats values(*devices[i], std::vector<float>(i + 1, 10 * static_cast<float>(i) + rank));
      const DeviceCollective::Term term{values.data(), values.data(), static_cast<int64_t>(i) + 1};
      collectives[i]->all_reduce_sum({&term, 1}, {});
      EXPECT_EQ(values.read(), std::vector<float>(i + 1, 20 * static_cast<float>(i) + 1));
    }
  });
}

TEST(StagedCollectives, ADeadRankEndsTheCallsOfAllDevicesOfTheOthers) {
  run_two_on_two([](const auto& collectives, const std::vector<Device*>& devices) {
    if (collectives[0]->rank() == 1) return;
    for (size_t i = 0; i < 2; ++i) {
      const DeviceFloats values(*devices[i], {1});
      const DeviceCollective::Term term{values.data(), values.data(), 1};
      EXPECT_THROW(collectives[i]->all_reduce_sum({&term, 1}, {}), CollectiveError);
    }
  });
}

}  // namespace
}  // namespace headroom
