// Loops and recordings that several threads of the host share.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/base/thread_pool.h"
#include "runtime/device/host/cpu_device.h"

namespace headroom {
namespace {

TEST(ThreadPool, CallsEachIndexOnceInPiecesOfTheGrain) {
  ThreadPool pool(4);
  for (const int64_t count : {0, 1, 7, 8, 9, 1000, 1003}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    std::atomic<bool> well_cut = true;
    pool.for_each(count, 8, [&](int64_t begin, int64_t end, int worker) {
      if (begin % 8 != 0 || (end % 8 != 0 && end != count) || worker < 0 || worker >= 4) well_cut = false;
      for (int64_t i = begin; i < end; ++i) ++calls[static_cast<size_t>(i)];
    });
    EXPECT_TRUE(well_cut) << count;
    for (const auto& call : calls) EXPECT_EQ(call, 1);
  }
}

TEST(ThreadPool, ALoopInsideALoopAndTwoAtOnceRunOnTheirCallers) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  const auto outer = [&] {
    pool.for_each(10, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        pool.for_each(10, 1, [&](int64_t first, int64_t last, int) { sum += last - first; });
      }
    });
  };
  std::thread other(outer);
  outer();
  other.join();
  EXPECT_EQ(sum, 200);
}

TEST(ThreadPool, NeedsAThread) {
  EXPECT_THROW(ThreadPool(0), InvalidArgument);
  EXPECT_THROW(CpuDevice(std::nullopt, {.intra_op = 0}), InvalidArgument);
  EXPECT_THROW(CpuDevice(std::nullopt, {.inter_op = 0}), InvalidArgument);
}

// Two tasks that each wait until the other runs: only threads side by side get through.
TEST(ThreadedRecording, RunsSideBySideWhatIsNotOrdered) {
  CpuDevice cpu(std::nullopt, {.inter_op = 2});
  std::atomic<int> met = 0;
  const auto meet = [&](Stream) {
    ++met;
    while (met % 2 != 0) std::this_thread::yield();
  };
  std::vector<int> after;
  const std::vector<Task> tasks = {
      {meet, {}, {}}, {meet, {}, {}}, {[&](Stream) { after.push_back(met); }, {0, 1}, {}}};
  const std::unique_ptr<Recording> recording = cpu.record(tasks, 2);
  recording->launch({});
  recording->launch({});
  EXPECT_EQ(after, (std::vector<int>{2, 4, 6, 8}));
}

TEST(ThreadedRecording, KeepsEveryOrderThatIsAskedFor) {
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
  const std::unique_ptr<Recording> recording = cpu.record(tasks, 3);
  recording->launch({});
  EXPECT_EQ(too_early, 0);
  for (const auto& times : done) EXPECT_EQ(times, 3);
}

TEST(ThreadedRecording, AFailureEndsTheLaunchAndTheNextOneRuns) {
  CpuDevice cpu(std::nullopt, {.inter_op = 2});
  bool fails = true;
  int followed = 0;
  const std::vector<Task> tasks = {{[&](Stream) {
                                      if (fails) throw InvalidArgument("bad data");
                                    },
                                    {},
                                    {}},
                                   {[&](Stream) { ++followed; }, {0}, {}}};
  const std::unique_ptr<Recording> recording = cpu.record(tasks, 1);
  EXPECT_THROW(recording->launch({}), InvalidArgument);
  EXPECT_EQ(followed, 0);
  fails = false;
  recording->launch({});
  EXPECT_EQ(followed, 1);
}

}  // namespace
}  // namespace headroom
