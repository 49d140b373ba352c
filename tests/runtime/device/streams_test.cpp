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
  const Stream one = device.streams().new_stream(), two = device.streams().new_stream();
  EXPECT_NE(one, two);
  EXPECT_NE(one, Stream{});
  device.streams().wait(one, two);
  device.streams().wait({}, one);
  const std::unique_ptr<Event> event = device.streams().record_event(two);
  event->wait();
  EXPECT_TRUE(event->done());
  device.streams().synchronize(one);
  device.streams().delete_stream(one);
  device.streams().delete_stream(two);
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
  const Stream up = gpu->streams().new_stream(), down = gpu->streams().new_stream();
  void* const data = memory.try_allocate(kCopyBytes);
  const HostBuffer from(memory, kCopyBytes), to(memory, kCopyBytes);
  for (int round = 1; round < 20; ++round) {
    std::memset(from.data(), round, from.size());
    gpu->memory().copy_to_device(data, from.data(), kCopyBytes, up);
    gpu->streams().wait(down, *gpu->streams().record_event(up));
    gpu->memory().copy_to_host(to.data(), data, kCopyBytes, down);
    gpu->streams().synchronize(down);
    EXPECT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0) << round;
  }
  memory.release(data, kCopyBytes);
  gpu->streams().delete_stream(up);
  gpu->streams().delete_stream(down);
}

TEST(SimulatedStreams, AnEventIsDoneWhenTheWorkBeforeItIs) {
  SimulatedGpu gpu(find_profile("h200"));
  const Stream stream = gpu.streams().new_stream();
  const std::unique_ptr<Event> before = gpu.streams().record_event(stream);
  gpu.streams().occupy(stream, 10);
  const std::unique_ptr<Event> after = gpu.streams().record_event(stream);
  gpu.streams().occupy(stream, 10);
  EXPECT_TRUE(before->done());
  EXPECT_FALSE(after->done());
  after->wait();
  EXPECT_TRUE(after->done());
  EXPECT_EQ(gpu.streams().now_us(), 10);
  gpu.streams().synchronize(stream);
  EXPECT_EQ(gpu.streams().now_us(), 20);
}

TEST(SimulatedStreams, AreNotOrderedWithEachOtherUnlessOneWaits) {
  SimulatedGpu gpu(find_profile("h200"));
  const Stream slow = gpu.streams().new_stream(), fast = gpu.streams().new_stream(),
               late = gpu.streams().new_stream();
  gpu.streams().occupy(slow, 100);
  gpu.streams().wait(late, slow);
  gpu.streams().occupy(late, 1);
  gpu.streams().occupy(fast, 5);
  const std::unique_ptr<Event> of_late = gpu.streams().record_event(late),
                               of_fast = gpu.streams().record_event(fast);
  gpu.streams().synchronize(fast);
  EXPECT_TRUE(of_fast->done());
  EXPECT_FALSE(of_late->done());
  of_late->wait();
  EXPECT_EQ(gpu.streams().now_us(), 101);
}

TEST(SimulatedStreams, AnEventOutlivesItsDevice) {
  auto gpu = std::make_unique<SimulatedGpu>(find_profile("h200"));
  gpu->streams().occupy({}, 3);
  const std::unique_ptr<Event> event = gpu->streams().record_event({});
  gpu.reset();
  event->wait();
  EXPECT_TRUE(event->done());
}

}  // namespace
}  // namespace headroom
