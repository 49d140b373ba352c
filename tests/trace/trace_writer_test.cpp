// What a recording is when it is written: at once, by one program, with long names cut.
#include "trace/trace_writer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/errors.h"
#include "base/files.h"
#include "tests/scratch_folder.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

TEST(TraceWriter, AFailedWriteIsReportedAtTheEnd) {
  EXPECT_THROW(TraceWriter("/nowhere/run.trace"), InvalidArgument);
  TraceWriter full("/dev/full");
  for (int i = 0; i < 100'000; ++i) full.allocate(static_cast<uint64_t>(i), 1, {});
  EXPECT_THROW(full.close(), Error);
}

TEST(TraceWriter, TwoDoNotWriteOneFile) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TraceWriter first(path);
  first.allocate(1, 512, {});
  EXPECT_THROW(TraceWriter second(path), InvalidArgument);
  first.close();
  EXPECT_EQ(read_traces(path).front().events.size(), 1u);
  TraceWriter third(path);
  EXPECT_THROW(read_traces(path), InvalidArgument) << "it is empty again";
}

TEST(TraceWriter, HasItsFirstLineAtOnceAndMoreSoon) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TraceWriter writer(path);
  EXPECT_NE(read_file(path, 1000).find("headroom-trace "), std::string::npos);
  for (int i = 0; i < 20; ++i) writer.allocate(static_cast<uint64_t>(i), 512, {.time_ns = i * 1'000'000});
  EXPECT_GE(read_traces(path).front().events.size(), 10u);  // of the first 20 ms
}

TEST(TraceWriter, NamesOfAnyLengthAreCutNotOverrun) {
  const ScratchFolder folder;
  const std::string name(100'000, ',');
  TraceWriter writer(folder / "run.trace");
  for (uint64_t i = 0; i < 1000; ++i) writer.allocate(i, 1, {.op = name, .tag = name});
  writer.close();
  const Trace trace = read_traces(folder / "run.trace").front();
  EXPECT_EQ(trace.events.size(), 1000u);
  EXPECT_EQ(trace.names[1], name.substr(0, 1024));
}

TEST(TraceWriter, KeepsTheInnermostWholeFramesOfALongStack) {
  const ScratchFolder folder;
  std::string stack;
  for (int i = 0; i < 2000; ++i) {
    stack += (i == 0 ? "" : "\n") + std::string(3, ',') + "net.py:" + std::to_string(i) + " forward";
  }
  TraceWriter writer(folder / "run.trace");
  writer.allocate(1, 1, {.stack = stack});
  writer.allocate(2, 1, {.stack = std::string(100'000, ',')});  // the longest line there can be
  writer.close();
  const Trace trace = read_traces(folder / "run.trace").front();
  const std::string& kept = trace.names[static_cast<size_t>(trace.block_facts[0].stack)];
  EXPECT_GT(kept.size(), kMaxTraceStackBytes - 100);
  EXPECT_LE(kept.size(), kMaxTraceStackBytes);
  EXPECT_TRUE(stack.starts_with(kept + "\n"));
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.block_facts[1].stack)].size(), kMaxTraceStackBytes);
}

}  // namespace
}  // namespace headroom
