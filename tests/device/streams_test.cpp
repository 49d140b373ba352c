// Tests streams of the simulated GPU, whose work can take time.
#include <gtest/gtest.h>

#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

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
