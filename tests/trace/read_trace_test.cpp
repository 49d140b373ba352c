// Traces of every format: their content, and refusals with their position.
#include "trace/read_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "tests/gzipped.h"
#include "tests/scratch_folder.h"
#include "trace/categorize.h"
#include "trace/trace_input.h"
#include "trace/trace_writer.h"

namespace headroom {
namespace {

Trace read(std::string_view content) {
  const ScratchFolder folder;
  std::vector<Trace> traces = read_traces(folder.write("trace", content));
  EXPECT_EQ(traces.size(), 1u);
  return traces.front();
}

// The message, without the folder.
std::string refusal(std::string_view content) {
  const ScratchFolder folder;
  try {
    read_traces(folder.write("trace", content));
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_TRUE(text.starts_with(folder.path())) << text;
    return text.substr(folder.path().size() + 1);
  }
  return "";
}

constexpr std::string_view kSmallCsv = "op,id,bytes\na,0,1024\na,1,512\nf,0,0\na,0,2048\nf,1\nf,0,2048\n";

void expect_small(const Trace& trace) {
  ASSERT_EQ(trace.events.size(), 6u);
  EXPECT_EQ(trace.blocks, 3);  // an id may be used again
  EXPECT_EQ(trace.events[3].block, 2);
  EXPECT_EQ(trace.events[5].block, 2);
  EXPECT_EQ(trace.events[2].bytes, 1024);
  EXPECT_EQ(trace.peak_bytes, 2560);
  EXPECT_EQ(trace.peak_event, 3);
}

TEST(ReadTrace, SaysHowMuchOfTheFileIsRead) {
  std::string text = "op,id,bytes\n";
  for (int i = 0; i < 40'000; ++i) text += "a,1,4096\nf,1\n";
  const ScratchFolder folder;
  std::vector<double> shares;
  read_traces(folder.write("trace", text), [&](double share) { shares.push_back(share); });
  ASSERT_GT(shares.size(), 2u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.front(), 0);
  EXPECT_LT(shares.front(), 1);
  EXPECT_EQ(shares.back(), 1);
}

// The lines that are read before the file is refused for their number; -1 if it is not.
int64_t lines_before_refusal(std::string_view content) {
  const ScratchFolder folder;
  TraceInput input(folder.write("trace", content));
  int64_t lines = 0;
  try {
    for (std::string_view line; input.next_line(&line);) ++lines;
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::string_view(error.what()).ends_with("gunzip it first")) << error.what();
    return lines;
  }
  return -1;
}

TEST(ReadTrace, ATitleStandsForTheNameOfTheFile) {
  const ScratchFolder folder;
  const std::string path = folder.write("trace", "a,0,8\nf,0\n");
  EXPECT_EQ(read_traces(path, {}, Moments::kRefuse, "train.py:step").front().name, "train.py:step");
  const std::string broken = folder.write("broken", "a,0,8\nf,0\nf,0\n");
  try {
    read_traces(broken, {}, Moments::kRefuse, "train.py:step");
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("train.py:step:")) << error.what();
    EXPECT_EQ(std::string(error.what()).find(folder.path()), std::string::npos) << error.what();
  }
}

TEST(ReadTrace, WhatGzipMadeSmallHasFewLines) {
  const std::string content(4 * TraceInput::kFreeLines, '\n');
  EXPECT_EQ(lines_before_refusal(content), -1);
  const std::string stored = gzipped(content, 1);
  const int64_t lines = lines_before_refusal(stored);
  EXPECT_GE(lines, TraceInput::kFreeLines);
  EXPECT_LE(lines, TraceInput::kFreeLines + TraceInput::kLinesPerStoredByte * (std::ssize(stored) + 1));
}

TEST(ReadTrace, CsvIsReadWithAndWithoutHeadLineEndsAndGzip) {
  expect_small(read(kSmallCsv));
  expect_small(read(kSmallCsv.substr(12)));
  expect_small(read(kSmallCsv.substr(0, kSmallCsv.size() - 1)));
  expect_small(read(gzipped(kSmallCsv)));
  expect_small(read("\xef\xbb\xbf" + std::string(kSmallCsv)));  // as Excel saves it
  expect_small(read("\xef\xbb\xbf" + std::string(kSmallCsv.substr(12))));
  std::string windows;
  for (const char c : kSmallCsv) windows += c == '\n' ? "\r\n" : std::string(1, c);
  expect_small(read(windows));
}

TEST(ReadTrace, WhatCannotHaveHappenedIsRefusedByLine) {
  const std::string two62 = "4611686018427387904";
  const std::pair<std::string, std::string> cases[] = {
      {"f,7", "expected a file that begins with 'headroom-trace"},
      {"op,id,bytes\nf,7,0\n", "trace:2: block 7 is freed, but was never allocated"},
      {"a,7,1\nf,7\nf,7\n", "trace:3: block 7 is freed twice"},
      {"a,7,1\na,7,1\n", "trace:2: block 7 is allocated again while it is live"},
      {"a,7,8\nf,7,9\n", "trace:2: block 7 of 8 bytes is freed as one of 9"},
      {"a,0,0\n", "trace:1: a block of 0 bytes"},
      {"a,0,9223372036854775808\n", "trace:1: size of 9223372036854775808 bytes is 2^63 or more"},
      {"a,0,18446744073709551616\n", "trace:1: size '18446744073709551616' is 2^64 or more"},
      {"a,0," + two62 + "\n", "1 to 2^60 bytes"},
      {"a,0,-5\n", "trace:1: size '-5' must not be negative"},
      {"a,0,-5x\n", "trace:1: size '-5x' is not a number"},
      {"a,-1,5\n", "trace:1: id '-1' must not be negative"},
      {"a,0,5x\n", "trace:1: size '5x' is not a number"},
      {"a,,5\n", "trace:1: id '' is not a number"},
      {"a,0,5\x1b[2J\n", "trace:1: size '5\\x1b[2J' is not a number"},
      {"a,1\n", "trace:1: 2 columns, expected 3"},
      {"a,1,2,3\n", "trace:1: 4 columns, expected 3"},
      {"a,1,2\nb,1,2\n", "trace:2: expected 'a,ID,BYTES' or 'f,ID'"},
      {"a,1,2\n" + std::string(100'000, 'x'), "trace:2: longer than 65536 bytes"},
      {"a,1,2\n" + std::string("\0\xff\x80", 3), "trace:2: "},
      {"op,id,bytes\n", "trace: the trace allocates nothing"},
      {"", "trace: not a trace"},
      {"\x7f"
       "ELF",
       "trace: not a trace"},
      {gzipped(std::string(kSmallCsv)).substr(0, 30), "the gzip data is truncated"},
  };
  for (const auto& [content, expected] : cases) {
    const std::string message = refusal(content);
    EXPECT_NE(message.find(expected), std::string::npos) << message << "\nexpected: " << expected;
  }
}

TEST(ReadTrace, SumsNeverOverflow) {
  std::string content;
  for (int i = 0; i < 5; ++i) content += "a," + std::to_string(i) + ",1152921504606846976\n";  // 2^60
  EXPECT_NE(refusal(content).find("trace:5: more than 2^62 bytes are live at once"), std::string::npos);
}

constexpr std::string_view kRmmHead = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST(ReadTrace, RmmLogsAreReadWithStreamsAndTime) {
  const Trace trace = read(std::string(kRmmHead) +
                           "1234,23:59:59.999999,allocate,0x7f00,1024,0x0\n"
                           "1234,23:59:59.999999,allocate,(nil),0,0x0\n"
                           "1235,00:00:00.000001,allocate failure,(nil),99999999,0x0\n"
                           "1235,00:00:00.000002,allocate,0x8f00,2048,0x5566\n"
                           "1235,00:00:00.000003,free,(nil),0,0x0\n"
                           "1234,00:00:00.000004,free,0x7f00,1024,0x5566\n");
  ASSERT_EQ(trace.events.size(), 3u);
  EXPECT_EQ(trace.format, "RMM log");
  EXPECT_EQ(trace.streams, (std::vector<uint64_t>{0, 0x5566}));
  EXPECT_EQ(trace.events[0].stream, 0);
  EXPECT_EQ(trace.events[1].stream, 1);
  EXPECT_EQ(trace.events[2].stream, 1);
  EXPECT_EQ(trace.events[1].time_ns - trace.events[0].time_ns, 3'000);  // over midnight
  EXPECT_EQ(trace.peak_bytes, 3072);
}

TEST(ReadTrace, BrokenRmmLogsAreRefusedByLine) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"1,00:00:00.000001,free,0x7f00,1024,0x0\n", "trace:2: block 32512 is freed, but was never allocated"},
      {"1,00:00:00.000001,allocate,0x7f00,0,0x0\n", "trace:2: a block of 0 bytes"},
      {"1,00:00:00.000001,alloc,0x7f00,1,0x0\n", "trace:2: the action is neither"},
      {"1,0:0:0,allocate,0x7f00,1,0x0\n", "trace:2: the time is not"},
      {"1,00:00:00.000001,allocate,pointer,1,0x0\n", "trace:2: pointer 'pointer' is not a number"},
      {"1,00:00:00.000001,allocate,0x7f00,1\n", "trace:2: 5 columns, expected 6"},
  };
  for (const auto& [line, expected] : cases) {
    const std::string message = refusal(std::string(kRmmHead) + std::string(line));
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST(ReadTrace, AWrittenTraceReadsBackTheSame) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  {
    TraceWriter writer(path);
    writer.mark(0, StepPhase::kSetup, 100);
    writer.allocate(0xdeadbeefcafe, 1000,
                    {.stream = 7,
                     .time_ns = 123,
                     .op = "MatMul",
                     .tag = "100 %, \"w\"\n",
                     .module = "layer1.0.conv1",
                     .stack = "/a b/net.py:7 forward\n/train.py:31 main"});
    writer.part(0xdeadbeefcafe + 256, 744, 3, 5,
                {.op = "MatMul", .tag = "y", .category = MemoryCategory::kInputs});
    writer.mark(2, StepPhase::kBackward, 122);
    writer.allocate(UINT64_MAX, 1, {.op = std::string_view("\0\xff", 2)});
    writer.setting("strategy", "grab,all");
    writer.add({.kind = DeviceEvent::Kind::kReserve, .address = 4096, .bytes = 3}, {.time_ns = 1});
    writer.add({.kind = DeviceEvent::Kind::kRetry, .bytes = 5}, {.stream = 7, .time_ns = 2});
    writer.add({.kind = DeviceEvent::Kind::kOutOfMemory, .bytes = 6},
               {.stream = 7, .time_ns = 3, .op = "MatMul", .tag = "z", .source = "a.cpp:1"});
    writer.add({.kind = DeviceEvent::Kind::kDevice,
                .bytes = 10,
                .free_bytes = 1,
                .process_bytes = 2,
                .others_bytes = 3},
               {.time_ns = 4});
    writer.add({.kind = DeviceEvent::Kind::kEmptyCache}, {.time_ns = 5});
    writer.free(0xdeadbeefcafe, {.time_ns = INT64_MAX});
    writer.close();
  }
  const Trace trace = read_traces(path).front();
  ASSERT_EQ(trace.events.size(), 3u);
  EXPECT_EQ(trace.format, "Headroom trace");
  const TraceEvent& first = trace.events[0];
  EXPECT_EQ(first.bytes, 1000);
  EXPECT_EQ(trace.streams[static_cast<size_t>(first.stream)], 7u);
  EXPECT_EQ(first.time_ns, 123);
  EXPECT_EQ(trace.names[static_cast<size_t>(first.op)], "MatMul");
  EXPECT_EQ(trace.names[static_cast<size_t>(first.tag)], "100 %, \"w\"\n");
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events[1].op)], std::string("\0\xff", 2));
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.block_facts[0].module)], "layer1.0.conv1");
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.block_facts[0].stack)],
            "/a b/net.py:7 forward\n/train.py:31 main");
  EXPECT_EQ(trace.block_facts[1].stack, 0);
  ASSERT_EQ(trace.marks.size(), 2u);
  EXPECT_EQ(trace.marks[0].step, 0);
  EXPECT_EQ(trace.marks[0].phase, StepPhase::kSetup);
  EXPECT_EQ(trace.marks[0].position, 0);
  EXPECT_EQ(trace.marks[1].step, 2);
  EXPECT_EQ(trace.marks[1].phase, StepPhase::kBackward);
  EXPECT_EQ(trace.marks[1].position, 1);
  EXPECT_EQ(trace.marks[1].time_ns, 122);
  ASSERT_EQ(trace.parts.size(), 1u);
  const TracePart& part = trace.parts[0];
  EXPECT_EQ(part.block, first.block);
  EXPECT_EQ(part.address, 0xdeadbeefcafeu + 256);
  EXPECT_EQ(part.bytes, 744);
  EXPECT_EQ(part.first, 3);
  EXPECT_EQ(part.end, 5);
  EXPECT_EQ(trace.names[static_cast<size_t>(part.tag)], "y");
  EXPECT_EQ(part.category, MemoryCategory::kInputs);
  EXPECT_FALSE(trace.events[2].allocates);
  EXPECT_EQ(trace.events[2].block, first.block);
  EXPECT_EQ(trace.events[2].time_ns, INT64_MAX);
  EXPECT_EQ(trace.settings.front().second, "grab,all");
  ASSERT_EQ(trace.device_events.size(), 5u);
  EXPECT_EQ(trace.device_events[0].address, 4096u);
  EXPECT_EQ(trace.device_events[1].stream, first.stream);
  EXPECT_EQ(trace.device_events[2].op, first.op);
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.device_events[2].source)], "a.cpp:1");
  EXPECT_EQ(trace.device_events[3].others_bytes, 3);
  EXPECT_EQ(trace.device_events[3].time_ns, 4);
  EXPECT_EQ(trace.device_events[4].kind, DeviceEvent::Kind::kEmptyCache);
  EXPECT_EQ(trace.device_events[4].position, 2);
}

TEST(ReadTrace, VersionOneIsStillRead) {
  const ScratchFolder folder;
  const Trace trace = read_traces(folder.write("old.trace",
                                               "headroom-trace 1\nop,id,bytes,stream,time_ns,node,tag\n"
                                               "a,1,10,7,5,conv%2C1,w\nf,1,10,7,6,,\n"))
                          .front();
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events[0].op)], "conv,1");
  EXPECT_EQ(trace.events[1].time_ns, 6);
}

TEST(ReadTrace, BrokenTracesAreRefusedByLine) {
  const std::string head = "headroom-trace 1\nop,id,bytes,stream,time_ns,node,tag\n";
  const std::pair<std::string, std::string_view> cases[] = {
      {"headroom-trace 5\n", "trace:1: unknown version: 1 to 4 can be read"},
      {"headroom-trace 4\na,1,1,1,0,0,0,0,0,0\n", "trace:2: 10 columns, expected 12"},
      {"headroom-trace 3\na,1,1,1,0,0,0,0,0,0,0,0\n", "trace:2: 12 columns, expected 10"},
      {"headroom-trace 4\na,1,1,1,0,0,0,0,0,0,0,1\n", "trace:2: name 1 is not defined yet"},
      {"headroom-trace 4\nm,1,1\n", "trace:2: 3 columns, expected 4"},
      {"headroom-trace 4\nm,1,6,0\n", "trace:2: unknown phase 6"},
      {"headroom-trace 4\nm,-1,0,0\n", "trace:2: step -1: must be 0 to 2^31-1"},
      {"headroom-trace 4\nm,2147483648,0,0\n", "trace:2: step 2147483648"},
      {"headroom-trace 4\nm,2,1,0\nm,1,1,0\n", "trace:3: step 1 after step 2"},
      {"headroom-trace 4\nn," + std::string(70'000, 'x') + "\n", "trace:2: longer than 65536 bytes"},
      {"headroom-trace 3\np,1,1,0,1,0,0,0,0\n", "trace:2: a part must follow the allocation"},
      {"headroom-trace 3\na,10,4,4,0,0,0,0,0,0\np,11,4,0,1,0,0,0,0\n",
       "trace:3: a part of 4 bytes at 11 is not"},
      {"headroom-trace 3\na,10,4,4,0,0,0,0,0,0\np,f,2,0,1,0,0,0,0\n",
       "trace:3: a part of 2 bytes at f is not"},
      {"headroom-trace 3\na,10,4,4,0,0,0,0,0,0\np,10,4,2,2,0,0,0,0\n", "trace:3: a part in [2, 2)"},
      {"headroom-trace 2\nq,1\n", "trace:2: unknown kind of line 'q'"},
      {"headroom-trace 2\na,1,1,1,0,0,0,0,0\n", "trace:2: 9 columns, expected 10"},
      {"headroom-trace 2\na,1,1,1,0,0,1,0,0,0\n", "trace:2: name 1 is not defined yet"},
      {"headroom-trace 2\na,1,1,1,0,0,0,0,0,8\n", "trace:2: unknown category 8"},
      {"headroom-trace 2\nt,1,0,-1\n", "trace:2: the time is negative"},
      {"headroom-trace 2\nr,1,2305843009213693952,0\n", "trace:2: 2305843009213693952 bytes"},
      {"headroom-trace 1\n", "trace:2: the header is not"},
      {head + "a,1,1,0,0,\n", "trace:3: 6 columns, expected 7"},
      {head + "a,1,1,0,0,,%4\n", "trace:3: incomplete escape"},
      {head + "a,1,1,0,0,,%zz\n", "trace:3: escape 'zz' is not a number"},
      {head + "a,1,1,0,9223372036854775808,,\n", "trace:3: "},
      {head + "f,1,1,0,0,,\n", "trace:3: block 1 is freed, but was never allocated"},
  };
  for (const auto& [content, expected] : cases) {
    const std::string message = refusal(content);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

// Both protocols that Python has written by default; tests/fuzz/make_snapshots.py made them.
TEST(ReadTrace, SnapshotsOfPyTorchAreReadWithWhatWasThereBefore) {
  for (const char* name : {"snapshot.pickle", "snapshot2.pickle"}) {
    const std::vector<Trace> traces =
        read_traces(HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/" + std::string(name));
    ASSERT_EQ(traces.size(), 1u);  // the other device has no history
    const Trace& trace = traces.front();
    EXPECT_EQ(trace.format, "PyTorch memory snapshot");
    EXPECT_TRUE(trace.name.ends_with(name));
    // Two from before, three of the history; two are freed, because a request alone frees nothing.
    std::string order;
    for (const TraceEvent& event : trace.events) {
      order += (event.allocates ? "a" : "f") + std::to_string(event.bytes) + " ";
    }
    EXPECT_EQ(order, "a512 a2000 a1000 f512 a3000 f1000 a700 ");
    EXPECT_EQ(trace.peak_bytes, 6000);
    const TraceEvent& tagged = trace.events[4];
    EXPECT_EQ(tagged.op, 0);  // a function of the user is no op
    const TraceBlock& facts = trace.block_facts[static_cast<size_t>(tagged.block)];
    EXPECT_EQ(trace.names[static_cast<size_t>(facts.source)], "/src/train.py:42");
    EXPECT_EQ(trace.names[static_cast<size_t>(tagged.tag)], "loss");
    EXPECT_EQ(trace.streams[static_cast<size_t>(tagged.stream)], 94000000u);
    EXPECT_EQ(tagged.time_ns, 1700000000000004000);
  }
}

TEST(ReadTrace, ASnapshotWithoutAHistoryCanBeShownAndNotReplayed) {
  const std::string path = HEADROOM_SOURCE_DIR "/tests/fuzz/seeds/moment.pickle";
  try {
    read_traces(path);
    FAIL() << "it was read for a replay";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("no history, only one moment"), std::string::npos) << message;
    EXPECT_NE(message.find("headroom report"), std::string::npos) << message;
  }
  const std::vector<Trace> traces = read_traces(path, {}, Moments::kTake);
  ASSERT_EQ(traces.size(), 1u);
  const Trace& trace = traces.front();
  EXPECT_TRUE(is_moment(trace));
  EXPECT_EQ(trace.peak_bytes, 4194304 + 2000000);
  ASSERT_EQ(trace.block_facts.size(), 2u);
  EXPECT_EQ(trace.block_facts[0].category, MemoryCategory::kWeights);  // a constructor made it
  EXPECT_EQ(trace.block_facts[1].category, MemoryCategory::kActivations);
  EXPECT_EQ(trace.block_facts[0].rule, CategoryRule::kStackAlone);
}

TEST(ReadTrace, PicklesThatAreNoSnapshotAreRefusedByByte) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string_view> cases[] = {
      {"\x80\x04N."s, "trace: a pickle, but not a PyTorch memory snapshot"},
      {"\x80\x04]\x94."s, "trace: a pickle, but not a PyTorch memory snapshot"},
      {"\x80\x02}U\x0d"
       "device_traces]s."s,
       "trace: the snapshot has no history"},
      {"\x80\x04"s, "trace: byte 2: the file ends too early"},
      {"\x80\x06."s, "trace: byte 2: pickle protocol above 5"},
      {"\x80\x04."s, "trace: byte 3: the pickle pops from an empty stack"},
      {"\x80\x04u"s, "trace: byte 3: the pickle lacks a mark"},
      {"\x80\x04K\x01K\x01"
       "a"s,
       "appends to a value that is not a list"},
      {"\x80\x04]K\x01K\x01s"s, "sets items of a value that is not a dictionary"},
      {"\x80\x04h\x05"s, "a wrong memo position"},
      {"\x80\x04Nr\xff\xff\xff\xff"s, "a wrong memo position"},
      {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "the file ends too early"},
      {"\x80\x04X\xff\xff\xff\x3f"
       "abc"s,
       "the file ends too early"},
      // os.system("true"): it is not looked up, let alone called.
      {"\x80\x02"
       "cos\nsystem\nU\x04true\x85R."s,
       "trace: byte 3: pickle opcode 0x63: only plain data can be read"},
      {"(dp0\nVdevice_traces\np1\n(lp2\ns."s, "a pickle of protocol 0 or 1, which is not read"},
      {"}q\x01X\x0d\x00\x00\x00"s, "a pickle of protocol 0 or 1, which is not read"},
  };
  for (const auto& [content, expected] : cases) {
    const std::string message = refusal(content);
    EXPECT_NE(message.find(expected), std::string::npos) << message << "\nexpected: " << expected;
  }
}

// An event of a snapshot whose size is the value that `size` pushes.
std::string snapshot_with_size(const std::string& action, const std::string& size) {
  const auto text = [](std::string_view word) {
    return std::string("\x8c") + static_cast<char>(word.size()) + std::string(word);
  };
  return "\x80\x04}(" + text("segments") + "]" + text("device_traces") + "]](}(" + text("action") +
         text(action) + text("addr") + "K\x10" + text("size") + size + "ueau.";
}

TEST(ReadTrace, ASizeThatIsNoWholeNumberIsNamedAsSuch) {
  using namespace std::string_literals;
  EXPECT_EQ(refusal(snapshot_with_size("alloc", "K\x05")), "");
  const std::pair<std::string, std::string_view> cases[] = {
      {"\x8a\x09\0\0\0\0\0\0\0\0\x40"s,
       "the size of a block is not a whole number of 1 to 2^60 bytes"},                            // 2^70
      {"G\x3f\xf8\0\0\0\0\0\0"s, "the size of a block is not a whole number of 1 to 2^60 bytes"},  // 1.5
      {"G\x7f\xf8\0\0\0\0\0\0"s, "the size of a block is not a whole number of 1 to 2^60 bytes"},  // nan
      {"\x8c\x01x"s, "the size of a block is not a whole number of 1 to 2^60 bytes"},
      {"N"s, "a block without a size"},
      {"J\xfb\xff\xff\xff"s, "a block of -5 bytes"},
  };
  for (const auto& [size, expected] : cases) {
    for (const char* action : {"alloc", "free_completed"}) {
      const std::string message = refusal(snapshot_with_size(action, size));
      EXPECT_NE(message.find(expected), std::string::npos) << action << ": " << message;
    }
  }
}

TEST(ReadTrace, AMillionEventsMayHaveAsManyNamesAndMore) {
  constexpr int kEvents = 1'000'000, kNames = 1'200'000;
  std::string content = "headroom-trace 4\n";
  for (int i = 1; i <= kNames; ++i) {
    content += "n,op" + std::to_string(i) + "\n";
    if (i > kEvents) continue;
    content += "a,10,512,512,0,0," + std::to_string(i) + ",0,0,0,0,0\nf,10,0,0\n";
  }
  const Trace trace = read(content);
  EXPECT_EQ(trace.blocks, kEvents);
  EXPECT_EQ(trace.names.size(), kEvents + 1u);
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events.back().op)], "");
  EXPECT_EQ(trace.names.back(), "op" + std::to_string(kEvents));
}

TEST(ReadTrace, NamesThatNothingUsesDoNotFillTheMemory) {
  std::string content = "headroom-trace 4\n";
  for (int i = 0; i < 5'000'000; ++i) content += "n,\n";
  EXPECT_NE(refusal(content).find("names take more than 512.00 MiB"), std::string::npos) << refusal(content);
}

}  // namespace
}  // namespace headroom
