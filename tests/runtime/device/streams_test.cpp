// What every device promises of streams and events; on the simulated GPU, where work can be made to take
// time.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/device/gpus.h"
#include "runtime/device/host/cpu_device.h"
#include "runtime/device/host/simulated_gpu.h"
#include "runtime/device/host_buffer.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

void expect_that_idle_streams_are_done(Device& device) {
  device.initialise();
  const Stream one = device.new_stream(), two = device.new_stream();
  EXPECT_NE(one, two);
  EXPECT_NE(one, Stream{});
  device.wait(one, two);
  device.wait({}, one);
  const std::unique_ptr<Event> event = device.record_event(two);
  event->wait();
  EXPECT_TRUE(event->done());
  device.synchronize(one);
  device.delete_stream(one);
  device.delete_stream(two);
}

TEST(Streams, AreDoneWhenNothingWasQueued) {
  CpuDevice cpu;
  expect_that_idle_streams_are_done(cpu);
  SimulatedGpu gpu(find_profile("h200"));
  expect_that_idle_streams_are_done(gpu);
}

TEST_F(CudaTest, StreamsAreDoneWhenNothingWasQueued) {
  expect_that_idle_streams_are_done(*make_cuda_device({}));
}

TEST_F(CudaTest, QueuedCopiesKeepTheOrderThatEventsGive) {
  constexpr int64_t kCopyBytes = int64_t{64} << 20;
  const std::unique_ptr<Device> gpu = make_cuda_device({});
  gpu->initialise();
  DeviceMemory& memory = gpu->memory();
  const Stream up = gpu->new_stream(), down = gpu->new_stream();
  void* const data = memory.try_allocate(kCopyBytes);
  const HostBuffer from(memory, kCopyBytes), to(memory, kCopyBytes);
  for (int round = 1; round < 20; ++round) {
    std::memset(from.data(), round, from.size());
    gpu->copy_to_device(data, from.data(), kCopyBytes, up);
    gpu->wait(down, *gpu->record_event(up));
    gpu->copy_to_host(to.data(), data, kCopyBytes, down);
    gpu->synchronize(down);
    EXPECT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0) << round;
  }
  memory.release(data, kCopyBytes);
  gpu->delete_stream(up);
  gpu->delete_stream(down);
}

TEST(SimulatedStreams, AnEventIsDoneWhenTheWorkBeforeItIs) {
  SimulatedGpu gpu(find_profile("h200"));
  const Stream stream = gpu.new_stream();
  const std::unique_ptr<Event> before = gpu.record_event(stream);
  gpu.streams().occupy(stream, 10);
  const std::unique_ptr<Event> after = gpu.record_event(stream);
  gpu.streams().occupy(stream, 10);
  EXPECT_TRUE(before->done());
  EXPECT_FALSE(after->done());
  after->wait();
  EXPECT_TRUE(after->done());
  EXPECT_EQ(gpu.streams().now_us(), 10);
  gpu.synchronize(stream);
  EXPECT_EQ(gpu.streams().now_us(), 20);
}

TEST(SimulatedStreams, AreNotOrderedWithEachOtherUnlessOneWaits) {
  SimulatedGpu gpu(find_profile("h200"));
  const Stream slow = gpu.new_stream(), fast = gpu.new_stream(), late = gpu.new_stream();
  gpu.streams().occupy(slow, 100);
  gpu.wait(late, slow);
  gpu.streams().occupy(late, 1);
  gpu.streams().occupy(fast, 5);
  const std::unique_ptr<Event> of_late = gpu.record_event(late), of_fast = gpu.record_event(fast);
  gpu.synchronize(fast);
  EXPECT_TRUE(of_fast->done());
  EXPECT_FALSE(of_late->done());
  of_late->wait();
  EXPECT_EQ(gpu.streams().now_us(), 101);
}

TEST(SimulatedStreams, AnEventOutlivesItsDevice) {
  auto gpu = std::make_unique<SimulatedGpu>(find_profile("h200"));
  gpu->streams().occupy({}, 3);
  const std::unique_ptr<Event> event = gpu->record_event({});
  gpu.reset();
  event->wait();
  EXPECT_TRUE(event->done());
}

}  // namespace
}  // namespace headroom
