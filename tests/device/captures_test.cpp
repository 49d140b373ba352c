#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "device/host/cpu_device.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

TEST(Capture, RunsItsTasksInOrderTheGivenNumberOfTimes) {
  CpuDevice cpu;
  SimulatedGpu gpu(find_profile("h200"));
  for (Device* device : {static_cast<Device*>(&cpu), static_cast<Device*>(&gpu)}) {
    std::vector<int> ran;
    const std::vector<Task> tasks = {{[&](Stream) { ran.push_back(0); }, {}, {1}},
                                     {[&](Stream) { ran.push_back(1); }, {0}, {}}};
    const std::unique_ptr<Capture> captured = device->captures().capture(tasks, 2);
    EXPECT_TRUE(ran.empty());
    captured->launch({});
    EXPECT_EQ(ran, (std::vector<int>{0, 1, 0, 1}));
    captured->launch({});
    EXPECT_EQ(ran.size(), 8u);
  }
}

TEST(Capture, CallsTheTasksOfOtherHostDevicesToo) {
  CpuDevice cpu;
  SimulatedGpu gpu(find_profile("h200"));
  int ran = 0;
  Task task{[&](Stream) { ++ran; }, {}, {}};
  task.device = &gpu;
  cpu.captures().capture({&task, 1}, 3)->launch({});
  EXPECT_EQ(ran, 3);
}

// Two tasks that each wait until the other runs: only threads side by side get through.
TEST(ThreadedCapture, RunsSideBySideWhatIsNotOrdered) {
  CpuDevice cpu(std::nullopt, {.inter_op = 2});
  std::atomic<int> met = 0;
  const auto meet = [&](Stream) {
    ++met;
    while (met % 2 != 0) std::this_thread::yield();
  };
  std::vector<int> after;
  const std::vector<Task> tasks = {
      {meet, {}, {}}, {meet, {}, {}}, {[&](Stream) { after.push_back(met); }, {0, 1}, {}}};
  const std::unique_ptr<Capture> captured = cpu.captures().capture(tasks, 2);
  captured->launch({});
  captured->launch({});
  EXPECT_EQ(after, (std::vector<int>{2, 4, 6, 8}));
}

TEST(ThreadedCapture, KeepsEveryRequiredOrder) {
  CpuDevice cpu(std::nullopt, {.inter_op = 4});
  std::vector<std::atomic<int>> done(60);
  std::atomic<int> too_early = 0;
  std::vector<Task> tasks;
  for (size_t i = 0; i < done.size(); ++i) {
    std::vector<int> after;
    for (size_t j = i % 7; j < i; j += 5) after.push_back(static_cast<int>(j));
    tasks.push_back({[&, i, after](Stream) {
                       for (const int j : after) too_early += done[static_cast<size_t>(j)] <= done[i];
                       ++done[i];
                     },
                     after,
                     {}});
  }
  const std::unique_ptr<Capture> captured = cpu.captures().capture(tasks, 3);
  captured->launch({});
  EXPECT_EQ(too_early, 0);
  for (const auto& times : done) EXPECT_EQ(times, 3);
}

TEST(ThreadedCapture, AFailureEndsTheLaunchAndTheNextOneRuns) {
  CpuDevice cpu(std::nullopt, {.inter_op = 2});
  bool fails = true;
  int followed = 0;
  const std::vector<Task> tasks = {{[&](Stream) {
                                      if (fails) throw InvalidArgument("bad data");
                                    },
                                    {},
                                    {}},
                                   {[&](Stream) { ++followed; }, {0}, {}}};
  const std::unique_ptr<Capture> captured = cpu.captures().capture(tasks, 1);
  EXPECT_THROW(captured->launch({}), InvalidArgument);
  EXPECT_EQ(followed, 0);
  fails = false;
  captured->launch({});
  EXPECT_EQ(followed, 1);
}

}  // namespace
}  // namespace headroom
