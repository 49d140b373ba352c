#include "tools/report/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "tests/scratch_folder.h"
#include "tools/report/address_map.h"
#include "tools/report/checks.h"
#include "tools/report/diff.h"
#include "tools/report/failure.h"
#include "tools/report/views.h"
#include "trace/read_trace.h"
#include "trace/trace_builder.h"

namespace headroom::report {
namespace {

// Two segments of 4 KiB; at the peak 1 KiB is live at the beginning of one and 2 KiB in the middle of the
// other.
constexpr const char* kRecording =
    "headroom-trace 2\n"
    "s,strategy,caching\n"
    "r,10000,4096,0\n"
    "d,100000,80000,14096,0,1\n"
    "n,conv2d\nn,y\nn,/home/me/net/a.cpp:1\nn,/home/me/net/b.cpp:22\n"
    "a,10000,1000,1024,0,10,1,2,3,4\n"
    "r,20000,4096,1\n"
    "a,20000,1024,1024,0,10,1,0,4,1\n"
    "a,20400,2000,2048,0,10,1,2,4,2\n"
    "f,20000,0,10\n"
    "t,9000,0,1\n"
    "o,9000,0,1,1,2,4,2\n"
    "f,20400,0,10\n"
    "u,20000,4096,1\n";

Trace read(const std::string& text) {
  const ScratchFolder folder;
  return std::move(read_traces(folder.write("run.trace", text)).front());
}

// 2 GiB were reserved once, and 1 GiB when a request failed beside much free memory.
TEST(Failure, ALimitIsNotBelowWhatWasEverReserved) {
  TraceBuilder builder("run.pickle", "PyTorch memory snapshot");
  const uint64_t first = uint64_t{1} << 40, second = uint64_t{2} << 40;
  for (const uint64_t address : {first, second}) {
    builder.add({.kind = DeviceEvent::Kind::kReserve, .address = address, .bytes = kGiB});
    builder.allocate(address, kGiB / 2);
  }
  builder.free(second);
  builder.add({.kind = DeviceEvent::Kind::kUnreserve, .address = second, .bytes = kGiB});
  builder.add({.kind = DeviceEvent::Kind::kOutOfMemory, .bytes = 4 * kGiB, .free_bytes = 20 * kGiB},
              {.op = "aten::mm", .source = "train.py:7"});
  const Trace trace = builder.take();
  const std::optional<Failure> failure = find_failure(History(trace));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->reserved_bytes, kGiB) << "the second one went back before the request";
  EXPECT_EQ(failure->idle_bytes, kGiB / 2);
  EXPECT_NE(failure->judgment.reason.find("the limit is at least 2.00 GiB and below 5.00 GiB"),
            std::string::npos)
      << failure->judgment.reason;
}

TEST(History, KnowsThePeakItsCategoriesAndTheDriverCalls) {
  const Trace trace = read(kRecording);
  const History history(trace);
  EXPECT_EQ(history.peak_bytes, 4024);
  EXPECT_EQ(history.peak_event(), 3);
  EXPECT_EQ(history.allocated_at_peak, 4096);
  EXPECT_EQ(history.peak_reserved_bytes, 8192);
  EXPECT_EQ(history.library_bytes, 10000);  // memory of the process besides its segment
  EXPECT_EQ(history.driver_calls, 3);
  EXPECT_EQ(history.retries, 1);
  EXPECT_EQ(history.out_of_memory, 1);
  EXPECT_EQ(history.live_at_end_bytes, 1000);
  const MemorySample& peak = history.samples[history.peak_sample];
  EXPECT_EQ(peak.bytes[static_cast<size_t>(MemoryCategory::kActivations)], 1000);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(MemoryCategory::kWeights)], 1024);
  EXPECT_EQ(peak.bytes[static_cast<size_t>(MemoryCategory::kLibrary)], 0) << "no block";
  EXPECT_EQ(peak.library_bytes, 10000);
  EXPECT_EQ(history.live_blocks(3), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(history.live_blocks(4), (std::vector<size_t>{2, 0}));
  EXPECT_EQ(history.source(2), "b.cpp:22");  // without the folder that all files share
}

TEST(History, FragmentationIsTheShareOfIdleBytesOutsideTheLargestGap) {
  const Trace trace = read(kRecording);
  // Idle at the peak: 3072 after the first block, 1024 at the end of the second segment.
  EXPECT_DOUBLE_EQ(*History(trace).fragmentation, 1024.0 / 4096);
  EXPECT_EQ(History(trace).idle_at_peak->bytes, 4096);
  EXPECT_EQ(History(trace).idle_at_peak->largest_bytes, 3072);
}

TEST(History, MissingFiguresAreUnknownNotZero) {
  const Trace trace = read("op,id,bytes\na,0,10\na,1,20\nf,0\n");
  const History history(trace);
  EXPECT_FALSE(history.peak_reserved_bytes);
  EXPECT_FALSE(history.fragmentation);
  EXPECT_THROW(check(history, {.max_reserved_bytes = 1}), InvalidArgument);
  EXPECT_THROW(check(history, {.no_out_of_memory = true}), InvalidArgument);
  EXPECT_TRUE(check(history, {.max_peak_bytes = 30})[0].passed());
  EXPECT_FALSE(check(history, {.max_peak_bytes = 29})[0].passed());
}

TEST(History, SamplesOfALongTraceKeepThePeak) {
  std::string text = "op,id,bytes\n";
  for (int i = 0; i < 10'000; ++i) text += "a,1," + std::to_string(i == 7777 ? 5000 : 10) + "\nf,1\n";
  const Trace trace = read(text);
  const History history(trace);
  EXPECT_LE(history.samples.size(), static_cast<size_t>(History::kMaxSamples));
  EXPECT_EQ(history.samples[history.peak_sample].live_bytes, 5000);
  EXPECT_EQ(history.peak_event(), 2 * 7777 + 1);
}

TEST(History, PagesAreBoundedAndEscapeMarkupInNames) {
  std::string text = "headroom-trace 2\nn,</script><script>alert(1)</script>\n";
  for (int i = 0; i < 60'000; ++i) {
    text += "a," + std::to_string(1000 + i) + ",100,0,0,1,1,1,1,1\nf," + std::to_string(1000 + i) + ",0,1\n";
  }
  const Trace trace = read(text);
  const History history(trace);
  EXPECT_EQ(choose_blocks(history).size(), 20'000u);
  const std::string data = page_data(history, judge_history(history, Steps(trace)));
  EXPECT_LT(data.size(), 5'000'000u);
  EXPECT_EQ(data.find('<'), std::string::npos);
  EXPECT_NE(data.find("\\u003c/script>"), std::string::npos);
}

TEST(History, TheTimelineHasOneLetterForEachCategory) {
  const Trace trace = read("headroom-trace 2\na,100,600,0,0,1,0,0,0,1\na,800,400,0,0,1,0,0,0,2\n");
  EXPECT_EQ(timeline(History(trace), 4, 5),
            "     1000 B |  GG\n"
            "            |  GG\n"
            "      500 B |WWWW\n"
            "            |WWWW\n"
            "        0 B |WWWW\n"
            "            +----\n"
            "               ^ peak, event 2 of 2\n"
            "             W weights, G gradients\n");
}

TEST(Difference, NamesWhatGrewAppearedAndDisappeared) {
  const auto recording = [](const std::string& names, const std::string& events) {
    return read("headroom-trace 2\n" + names + events);
  };
  const Trace before = recording("n,conv\nn,old\nn,same\n",
                                 "a,1000,10,0,0,1,1,0,0,1\na,2000,5,0,0,1,2,0,0,1\na,3000,7,0,0,1,3,0,0,1\n");
  const Trace after = recording("n,same\nn,conv\nn,new\n",
                                "a,1000,7,0,0,1,1,0,0,1\na,2000,40,0,0,1,2,0,0,1\na,3000,9,0,0,1,3,0,0,1\n");
  const std::vector<OpDifference> ops = differences(History(before), History(after));
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].op, "conv");
  EXPECT_EQ(ops[0].peak_change(), 30);
  EXPECT_EQ(ops[1].op, "new");
  EXPECT_TRUE(ops[1].is_new());
  EXPECT_EQ(ops[2].op, "old");
  EXPECT_TRUE(ops[2].is_gone());
}

TEST(AddressMap, BlocksWithoutAddressesNeverShareAPlaceWhileTheyLive) {
  std::string text = "op,id,bytes\n";
  std::vector<int> live;
  uint32_t random = 1;
  for (int id = 0; id < 400; ++id) {
    random = random * 1664525 + 1013904223;
    text += "a," + std::to_string(id) + "," + std::to_string(1 + random % 5000) + "\n";
    live.push_back(id);
    if (id % 3 == 0) continue;
    const size_t gone = (random >> 8) % live.size();
    text += "f," + std::to_string(live[gone]) + "\n";
    live.erase(live.begin() + static_cast<ptrdiff_t>(gone));
  }
  const Trace trace = read(text);
  const History history(trace);
  const AddressMap map(history);
  uint64_t bytes = 0;
  for (size_t a = 0; a < history.lifetimes.size(); ++a) {
    const auto end_of = [&](size_t block) {
      return map.offset(block) + static_cast<uint64_t>(history.bytes(block));
    };
    bytes = std::max(bytes, end_of(a));
    for (size_t b = 0; b < a; ++b) {
      const Lifetime &one = history.lifetimes[a], &other = history.lifetimes[b];
      if (one.begin >= other.end || other.begin >= one.end) continue;
      EXPECT_TRUE(end_of(a) <= map.offset(b) || end_of(b) <= map.offset(a)) << a << " and " << b;
    }
  }
  EXPECT_EQ(map.bytes(), bytes);
  EXPECT_LE(bytes, 2 * static_cast<uint64_t>(history.peak_bytes));
}

}  // namespace
}  // namespace headroom::report
