#include "allocators/recorder.h"

#include <gtest/gtest.h>

#include "allocators/strategy_text.h"
#include "allocators/trace/read_trace.h"
#include "runtime/core/errors.h"
#include "tests/allocators/devices.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

TEST(Recorder, WhatWasAskedIsWhatTheTraceSays) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TestDevice device(TestDeviceKind::kSimulated);
  const Stream stream = device.device().new_stream();
  {
    const auto allocator = make_allocator(parse_strategy("allow-growth+record=" + path), device.device());
    void* a = allocator->allocate(1000, {}, {"conv2d", "y"});
    void* b = allocator->allocate(3 << 20, stream);
    allocator->deallocate(a, 1000);
    EXPECT_THROW(allocator->allocate(int64_t{1} << 40), OutOfMemory);
    allocator->deallocate(b, 3 << 20, stream);
  }
  const std::vector<Trace> traces = read_traces(path);
  ASSERT_EQ(traces.size(), 1u);
  const Trace& trace = traces[0];
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.peak_bytes, 1000 + (3 << 20));
  EXPECT_EQ(trace.events[0].bytes, 1000);
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events[0].op)], "conv2d");
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.events[0].tag)], "y");
  EXPECT_NE(trace.events[1].stream, trace.events[0].stream);
  EXPECT_FALSE(trace.events[2].allocates);
  EXPECT_EQ(trace.events[2].block, 0);
  EXPECT_GE(trace.events[3].time_ns, trace.events[0].time_ns);
}

TEST(Recorder, AFileThatCannotBeWrittenIsRefused) {
  TestDevice device(TestDeviceKind::kSimulated);
  EXPECT_THROW(make_allocator(parse_strategy("direct+record=/no/such/folder/run.trace"), device.device()),
               InvalidArgument);
}

}  // namespace
}  // namespace headroom
