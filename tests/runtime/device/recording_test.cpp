#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/errors.h"
#include "runtime/device/faulty/faulty_device.h"
#include "runtime/device/host/cpu_device.h"
#include "runtime/device/host/simulated_gpu.h"

namespace headroom {
namespace {

TEST(Recording, RunsItsTasksInOrderAsOftenAsAskedAtEachLaunch) {
  CpuDevice cpu;
  SimulatedGpu gpu(find_profile("h200"));
  for (Device* device : {static_cast<Device*>(&cpu), static_cast<Device*>(&gpu)}) {
    std::vector<int> ran;
    const std::vector<Task> tasks = {{[&](Stream) { ran.push_back(0); }, {}, {1}},
                                     {[&](Stream) { ran.push_back(1); }, {0}, {}}};
    const std::unique_ptr<Recording> recording = device->record(tasks, 2);
    EXPECT_TRUE(ran.empty());
    recording->launch({});
    EXPECT_EQ(ran, (std::vector<int>{0, 1, 0, 1}));
    recording->launch({});
    EXPECT_EQ(ran.size(), 8u);
  }
}

TEST(Recording, TasksThatWaitForWhatCannotComeFirstAreRefused) {
  CpuDevice device;
  const auto nothing = [](Stream) {};
  for (const Task& task : {Task{nothing, {0}, {}}, Task{nothing, {1}, {}}, Task{nothing, {-1}, {}},
                           Task{nothing, {}, {1}}, Task{nothing, {}, {-1}}}) {
    EXPECT_THROW(device.record({&task, 1}, 1), InvalidArgument);
  }
  const Task itself_last_time{nothing, {}, {0}};
  EXPECT_NO_THROW(device.record({&itself_last_time, 1}, 2));
  EXPECT_THROW(device.record({&itself_last_time, 1}, 0), InvalidArgument);
}

TEST(Recording, MakingAndLaunchingAreDriverCallsThatMayFail) {
  CpuDevice cpu;
  FaultyDevice device(cpu);
  int ran = 0;
  const Task task{[&](Stream) { ++ran; }, {}, {}};
  device.faults().arm({.failing_call = 1});
  EXPECT_THROW(device.record({&task, 1}, 1), DeviceError);
  const std::unique_ptr<Recording> recording = device.record({&task, 1}, 1);
  device.faults().arm({.failing_call = 1});
  EXPECT_THROW(recording->launch({}), DeviceError);
  EXPECT_EQ(ran, 0);
  recording->launch({});
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace headroom
