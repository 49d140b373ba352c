// Promises of the simulated GPU for work that takes time: other streams see the old memory until they have
// waited, and with checked streams every missing wait is found, harmful or not.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/errors.h"
#include "device/host/simulated_gpu.h"

namespace headroom {
namespace {

constexpr int64_t kBytes = 1024;

// A GPU with two streams, and memory of it that holds zeros.
class StreamHazards : public testing::Test {
 protected:
  StreamHazards() { std::memset(x, 0, 2 * kBytes); }
  ~StreamHazards() override { gpu.memory().release(x, 2 * kBytes); }

  // Fills x with ones.
  void write(Stream stream, double us = 0, const char* name = "fill") {
    gpu.streams().queue(
        stream,
        {[this](Stream) { std::memset(x, 1, kBytes); }, name, "a.cpp:1", {{x, kBytes, true, "x"}}, us});
  }
  // Copies the first byte of x to `seen`.
  void read(Stream stream, double us = 0) {
    gpu.streams().queue(stream,
                        {[this](Stream) { seen = x[0]; }, "sum", "b.cpp:2", {{x, kBytes, false, "x"}}, us});
  }
  std::string hazard_of(const auto& call) {
    try {
      call();
    } catch (const StreamHazard& hazard) {
      return hazard.what();
    }
    return "none";
  }

  SimulatedGpu gpu{find_profile("h200")};
  std::byte* x = static_cast<std::byte*>(gpu.memory().try_allocate(2 * kBytes));
  const Stream one = gpu.streams().new_stream(), two = gpu.streams().new_stream();
  std::byte seen{9};
};

TEST_F(StreamHazards, AReaderThatDoesNotWaitSeesWhatWasThereBefore) {
  write(one, 1000);
  read(two, 10);
  gpu.streams().synchronize(two);
  EXPECT_EQ(seen, std::byte{0});
  EXPECT_EQ(gpu.streams().now_us(), 10);
  gpu.streams().synchronize(one);
  EXPECT_EQ(x[0], std::byte{1});
  EXPECT_EQ(gpu.streams().now_us(), 1000);
}

TEST_F(StreamHazards, AReaderThatWaitsSeesWhatWasWritten) {
  write(one, 1000);
  gpu.streams().wait(two, one);
  read(two, 10);
  gpu.streams().synchronize(two);
  EXPECT_EQ(seen, std::byte{1});
  EXPECT_EQ(gpu.streams().now_us(), 1010);
}

TEST_F(StreamHazards, AnEventOrdersWhatComesBeforeItOnly) {
  const std::unique_ptr<Event> before = gpu.streams().record_event(one);
  write(one, 1000);
  gpu.streams().wait(two, *before);
  read(two, 10);
  gpu.streams().synchronize(two);
  EXPECT_EQ(seen, std::byte{0});
  gpu.streams().wait(two, *gpu.streams().record_event(one));
  read(two, 10);
  gpu.streams().synchronize(two);
  EXPECT_EQ(seen, std::byte{1});
}

TEST_F(StreamHazards, AnEventOfAnotherDeviceIsRefused) {
  SimulatedGpu other(find_profile("h200"));
  const std::unique_ptr<Event> event = other.streams().record_event({});
  EXPECT_THROW(gpu.streams().wait(one, *event), InvalidArgument);
}

TEST_F(StreamHazards, BlockingStreamsWaitForEachWork) {
  gpu.streams().set_blocking(true);
  write(one, 1000);
  EXPECT_EQ(gpu.streams().now_us(), 1000);
  read(two, 10);
  EXPECT_EQ(seen, std::byte{1});
  EXPECT_EQ(gpu.streams().now_us(), 1010);
}

TEST_F(StreamHazards, ReleasingMemoryWaitsForAllWork) {
  write(one, 1000);
  read(one, 10);
  gpu.memory().release(gpu.memory().try_allocate(kBytes), kBytes);
  EXPECT_EQ(seen, std::byte{1});
}

TEST_F(StreamHazards, AFailureComesOutWhereItsStreamIsWaitedFor) {
  gpu.streams().queue(one, {[](Stream) { throw InvalidArgument("bad data"); }, "take", {}, {}, 5.0});
  write(one, 5);
  gpu.streams().synchronize(two);
  EXPECT_THROW(gpu.streams().synchronize(one), InvalidArgument);
  gpu.streams().synchronize(one);
  EXPECT_EQ(x[0], std::byte{1});
}

TEST_F(StreamHazards, CopiesFromPageLockedMemoryAreQueuedOthersAreWaitedFor) {
  DeviceProfile profile = find_profile("h200");
  profile.copy_bytes_per_us = 10;
  SimulatedGpu slow(profile);
  void* const device = slow.memory().try_allocate(kBytes);
  void* const locked = slow.memory().allocate_host(kBytes);
  std::memset(locked, 7, kBytes);
  std::memset(device, 0, kBytes);
  const Stream stream = slow.streams().new_stream();
  slow.memory().copy_to_device(device, locked, kBytes, stream);
  EXPECT_EQ(slow.streams().now_us(), 0);
  EXPECT_EQ(*static_cast<std::byte*>(device), std::byte{0});
  slow.streams().synchronize(stream);
  EXPECT_DOUBLE_EQ(slow.streams().now_us(), kBytes / 10.0);
  EXPECT_EQ(*static_cast<std::byte*>(device), std::byte{7});
  std::vector<std::byte> pageable(kBytes);
  slow.memory().copy_to_host(pageable.data(), device, kBytes, stream);
  EXPECT_DOUBLE_EQ(slow.streams().now_us(), 2 * kBytes / 10.0);
  EXPECT_EQ(pageable[0], std::byte{7});
  slow.memory().release_host(locked, kBytes);
  slow.memory().release(device, kBytes);
}

class CheckedStreams : public StreamHazards {
 protected:
  CheckedStreams() { gpu.streams().check_waits(); }
};

TEST_F(CheckedStreams, AMissingWaitIsFoundBeforeItBitesAndBothPlacesAreNamed) {
  write(one);
  EXPECT_EQ(hazard_of([&] { read(two); }),
            "missing wait: stream 2 reads x in sum (b.cpp:2) while stream 1 may still write it in fill "
            "(a.cpp:1); let stream 2 wait for stream 1 before");
  EXPECT_EQ(seen, std::byte{9});  // it was not queued
}

TEST_F(CheckedStreams, EveryWayToWaitIsOne) {
  const auto wait_host_event = [&] { gpu.streams().record_event(one)->wait(); };
  const auto poll = [&] { EXPECT_TRUE(gpu.streams().record_event(one)->done()); };
  const std::function<void()> waits[] = {[&] { gpu.streams().wait(two, one); },
                                         [&] { gpu.streams().wait(two, *gpu.streams().record_event(one)); },
                                         [&] { gpu.streams().synchronize(one); }, wait_host_event, poll};
  for (const auto& wait : waits) {
    write(one);
    EXPECT_NE(hazard_of([&] { read(two); }), "none");
    wait();
    EXPECT_EQ(hazard_of([&] { read(two); }), "none");
    gpu.streams().synchronize(two);
  }
}

TEST_F(CheckedStreams, WaitsReachThroughOtherStreams) {
  const Stream three = gpu.streams().new_stream();
  write(one);
  gpu.streams().wait(three, one);
  gpu.streams().wait(two, three);
  read(two);
  EXPECT_EQ(seen, std::byte{1});
}

TEST_F(CheckedStreams, WaitingForTheWrongWorkDoesNotHelp) {
  gpu.streams().wait(two, one);
  write(one);
  EXPECT_NE(hazard_of([&] { read(two); }), "none");
  gpu.streams().wait(one, two);  // the other way round
  EXPECT_NE(hazard_of([&] { read(two); }), "none");
}

TEST_F(CheckedStreams, OverwritingWhatAnotherReadsIsOneToo) {
  read(one);
  read(two);  // two readers need no order
  const std::string hazard = hazard_of([&] { write(one); });
  EXPECT_NE(hazard.find("stream 1 overwrites x in fill (a.cpp:1) while stream 2 may still read it in sum"),
            std::string::npos)
      << hazard;
  gpu.streams().wait(one, two);
  write(one);
}

TEST_F(CheckedStreams, TwoWritersNeedAnOrder) {
  write(one);
  const std::string hazard = hazard_of([&] { write(two, 0, "fill_again"); });
  EXPECT_NE(hazard.find("stream 2 overwrites x in fill_again (a.cpp:1) while stream 1 may still write it"),
            std::string::npos)
      << hazard;
}

TEST_F(CheckedStreams, OnlyBytesThatBothUseCount) {
  const auto touch = [&](Stream stream, int64_t first, int64_t bytes) {
    gpu.streams().queue(stream, {[](Stream) {}, "touch", {}, {{x + first, bytes, true}}});
  };
  touch(one, 0, 100);
  touch(two, 100, 100);
  EXPECT_NE(hazard_of([&] { touch(two, 99, 2); }), "none");
  EXPECT_NE(hazard_of([&] { touch(one, 150, 1); }), "none");
  touch(two, 150, 1000);
  touch(one, 50, 50);
  EXPECT_NE(hazard_of([&] { touch(one, 1149, 1); }), "none");
  touch(one, 1150, 1);
}

TEST_F(CheckedStreams, MemoryThatWentBackIsNewWhenItComesAgain) {
  write(one);
  gpu.memory().release(x, 2 * kBytes);
  x = static_cast<std::byte*>(gpu.memory().try_allocate(2 * kBytes));
  read(two);
}

TEST_F(CheckedStreams, FindsAHostCopyThatWaitsForNoStream) {
  write(one);
  std::byte copy[kBytes];
  const std::string hazard = hazard_of([&] { gpu.memory().copy_to_host(copy, x, kBytes); });
  EXPECT_NE(
      hazard.find("the default stream reads x in cudaMemcpyDeviceToHost while stream 1 may still write"),
      std::string::npos)
      << hazard;
  gpu.streams().synchronize(one);
  gpu.memory().copy_to_host(copy, x, kBytes);
  EXPECT_EQ(copy[0], std::byte{1});
}

}  // namespace
}  // namespace headroom
