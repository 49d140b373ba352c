#include "allocators/trace_recorder.h"

#include <gtest/gtest.h>

#include "allocators/observer.h"
#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "base/files.h"
#include "tests/allocators/devices.h"
#include "tests/scratch_folder.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

TEST(TraceRecorder, WritesEveryRequest) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TestDevice device(TestDeviceKind::kSimulated);
  const Stream stream = device.device().streams().new_stream();
  {
    const auto allocator = make_allocator(parse_strategy("allow-growth+record=" + path), device.device());
    void* a = allocator->allocate(1000, {}, {"conv2d", "y", "net.cpp:7", MemoryCategory::kActivations});
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

TEST(TraceRecorder, WritesDriverCallsFailuresAndTheDevice) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TestDevice device(TestDeviceKind::kSimulated);
  Statistics statistics;
  {
    const auto allocator = make_allocator(parse_strategy("grab-all+record=" + path), device.device());
    void* a = allocator->allocate(1000, {}, {"conv2d", "y", "net.cpp:7", MemoryCategory::kActivations});
    EXPECT_THROW(allocator->allocate(int64_t{1} << 40, {}, {"matmul", "z"}), OutOfMemory);
    allocator->deallocate(a, 1000);
    allocator->observe_device();
    statistics = allocator->statistics();
  }
  const Trace trace = read_traces(path).front();
  ASSERT_EQ(trace.block_facts.size(), 1u);
  EXPECT_EQ(trace.block_facts[0].block_bytes, 1024);
  EXPECT_EQ(trace.block_facts[0].category, MemoryCategory::kActivations);
  EXPECT_EQ(trace.names[static_cast<size_t>(trace.block_facts[0].source)], "net.cpp:7");
  EXPECT_EQ(trace.settings.front(), (std::pair<std::string, std::string>("strategy", "grab-all")));
  using Kind = DeviceEvent::Kind;
  std::vector<Kind> kinds;
  for (const DeviceEvent& event : trace.device_events) kinds.push_back(event.kind);
  // The pool that the strategy reserved before it had an observer comes first, and is released at the end.
  EXPECT_EQ(kinds, (std::vector{Kind::kReserve, Kind::kDevice, Kind::kDevice, Kind::kOutOfMemory,
                                Kind::kDevice, Kind::kUnreserve}));
  const DeviceEvent& pool = trace.device_events[0];
  EXPECT_EQ(pool.bytes, statistics.reserved.current);
  EXPECT_NE(pool.address, 0u);
  const DeviceEvent& device_now = trace.device_events[1];
  EXPECT_GE(device_now.process_bytes, pool.bytes);
  EXPECT_EQ(device_now.bytes, device.device().memory().info().total);
  const DeviceEvent& failure = trace.device_events[3];
  EXPECT_EQ(failure.bytes, int64_t{1} << 40);
  EXPECT_EQ(failure.position, 1);
  EXPECT_EQ(trace.names[static_cast<size_t>(failure.op)], "matmul");
}

TEST(TraceRecorder, TheTraceOfAKilledProgramCanBeRead) {
  const ScratchFolder folder;
  const std::string path = folder / "run.trace";
  TestDevice device(TestDeviceKind::kSimulated);
  {
    const auto allocator = make_allocator(parse_strategy("direct+record=" + path), device.device());
    allocator->deallocate(allocator->allocate(1000), 1000);
    void* last = allocator->allocate(2000);
    allocator->deallocate(last, 2000);
  }
  const std::string whole = read_file(path, 1 << 20);
  const size_t freed = whole.rfind("\nf,");
  const Trace trace = read_traces(folder.write("cut.trace", whole.substr(0, freed + 4))).front();
  EXPECT_TRUE(trace.cut_off);
  EXPECT_EQ(trace.events.size(), 3u);
  EXPECT_FALSE(read_traces(path).front().cut_off);
}

TEST(TraceRecorder, AFullDiskIsReported) {
  testing::internal::CaptureStderr();
  { trace_recorder("/dev/full"); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "note: the trace is incomplete: /dev/full: cannot write it: No space left on device\n");
}

TEST(TraceRecorder, AFileThatCannotBeWrittenIsRefused) {
  TestDevice device(TestDeviceKind::kSimulated);
  EXPECT_THROW(make_allocator(parse_strategy("direct+record=/no/such/folder/run.trace"), device.device()),
               InvalidArgument);
}

}  // namespace
}  // namespace headroom
