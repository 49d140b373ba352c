#include "tools/report/load_trace.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "tests/scratch_folder.h"
#include "tools/report/history.h"
#include "trace/read_trace.h"
#include "trace/unfold.h"

namespace headroom::report {
namespace {

// A weight, an arena of 4 KiB in which z reuses the place of x while y lives, and a block after it.
constexpr const char* kPacked =
    "headroom-trace 3\n"
    "r,10000,8192,0\n"
    "n,conv2d\nn,x\nn,y\nn,z\nn,net.cpp:1\n"
    "a,10000,1000,1024,0,10,0,0,0,1\n"
    "a,10400,4096,4096,7,10,0,0,0,4\n"
    "p,10400,1024,0,4,1,2,5,4\n"
    "p,10c00,2048,2,9,1,3,5,4\n"
    "p,10400,2048,4,9,1,4,5,2\n"
    "t,9,0,1\n"
    "a,11400,512,512,0,10,0,0,0,6\n"
    "f,10400,7,10\n";

Trace read_packed() {
  const ScratchFolder folder;
  return std::move(read_traces(folder.write("run.trace", kPacked)).front());
}

TEST(LoadTrace, ListsTheTensorsOfAnArenaInsteadOfTheArena) {
  const Trace trace = unfold(read_packed());
  const History history(trace);
  EXPECT_EQ(history.peak_bytes, 1000 + 2048 + 2048);  // not x and z together
  EXPECT_EQ(history.allocated_at_peak, 1024 + 4096) << "the arena counts once, and whole";
  std::vector<std::string> tensors;
  for (const size_t block : history.live_blocks(history.peak_event()))
    tensors.push_back(history.tensor(block));
  EXPECT_EQ(tensors, (std::vector<std::string>{"y", "z", ""}));
  EXPECT_EQ(choose_blocks(history).size(), 5u);  // all but the arena
}

TEST(LoadTrace, OtherEventsKeepTheirOrder) {
  const Trace trace = unfold(read_packed());
  ASSERT_EQ(trace.events.size(), 4u + 2 * 3);
  EXPECT_EQ(trace.blocks, 6);
  EXPECT_EQ(trace.device_events[1].position, 8) << "after the arena's tensors";
  EXPECT_EQ(trace.events.back().bytes, 0) << "the arena's free";
  EXPECT_EQ(trace.events.back().block, trace.events[1].block);
  const History history(trace);
  EXPECT_EQ(history.live_at_end_bytes, 1000 + 512);
  EXPECT_EQ(history.retries, 1);
}

TEST(LoadTrace, FragmentationIgnoresGapsInsideTheArena) {
  const Trace trace = unfold(read_packed());
  EXPECT_DOUBLE_EQ(*History(trace).fragmentation, 0)
      << "one idle range after the arena; gaps inside belong to the plan";
}

TEST(LoadTrace, LeavesATraceWithoutPartsAlone) {
  const ScratchFolder folder;
  const Trace trace = read_traces(folder.write("t.csv", "op,id,bytes\na,0,10\nf,0\n")).front();
  EXPECT_EQ(unfold(trace).events.size(), 2u);
}

}  // namespace
}  // namespace headroom::report
