// Loops that several threads of the host share.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/side_by_side.h"
#include "base/thread_pool.h"
#include "device/host/cpu_device.h"

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

TEST(SideBySide, DoesEachPieceOnceOnAnyNumberOfThreads) {
  for (const size_t threads : {size_t{1}, size_t{2}, size_t{16}}) {
    std::vector<std::atomic<int>> calls(100);
    side_by_side(calls.size(), threads, [&](size_t i) { ++calls[i]; });
    for (const auto& call : calls) EXPECT_EQ(call, 1);
  }
  side_by_side(0, 4, [](size_t) { FAIL(); });
}

TEST(SideBySide, ThrowsWhatTheFirstOfThePiecesThatFailedHasThrown) {
  std::atomic<int> done = 0;
  try {
    side_by_side(50, 4, [&](size_t i) {
      ++done;
      if (i % 20 == 7) throw InvalidArgument(std::to_string(i));
    });
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "7");
  }
  EXPECT_EQ(done, 50);
}

}  // namespace
}  // namespace headroom
