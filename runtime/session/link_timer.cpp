#include "runtime/session/link_timer.h"

#include <chrono>
#include <cstddef>
#include <new>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/host_buffer.h"

namespace headroom {
namespace {

// A copy of so many bytes takes longer than to start it by far.
constexpr int64_t kCopiedBytes = 16 * kMiB;
// Each way, to different memory of the host, as in a step: 32 MiB of it that stay in its caches were copied
// at 47 GB/s each way on an H100, and 256 MiB or more at 40.
constexpr int kTimedCopies = 8;
constexpr int64_t kHostBytes = 2 * kTimedCopies * kCopiedBytes;

class OwnStream {
 public:
  explicit OwnStream(DeviceStreams& streams) : streams_(streams), stream_(streams.new_stream()) {}
  ~OwnStream() { streams_.delete_stream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream get() const { return stream_; }

 private:
  DeviceStreams& streams_;
  const Stream stream_;
};

class Block {
 public:
  explicit Block(DeviceMemory& memory)
      : memory_(memory), data_(static_cast<std::byte*>(memory.try_allocate(2 * kCopiedBytes))) {}
  ~Block() {
    if (data_ != nullptr) memory_.release(data_, 2 * kCopiedBytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() const { return data_; }

 private:
  DeviceMemory& memory_;
  std::byte* const data_;
};

double measure(Device& device, std::byte* on_device, std::byte* on_host) {
  DeviceStreams& streams = device.streams();
  const OwnStream there(streams), back(streams);
  const auto copy = [&](int times) {
    for (int i = 0; i < times; ++i) {
      std::byte* const block = on_host + 2 * i * kCopiedBytes;
      device.memory().copy_to_host(block, on_device, kCopiedBytes, there.get());
      device.memory().copy_to_device(on_device + kCopiedBytes, block + kCopiedBytes, kCopiedBytes,
                                     back.get());
    }
    streams.synchronize(there.get());
    streams.synchronize(back.get());
  };
  copy(kTimedCopies);
  const auto begin = std::chrono::steady_clock::now();
  copy(kTimedCopies);
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kTimedCopies * kCopiedBytes) / elapsed.count();
}

}  // namespace

std::optional<double> measure_link_bytes_per_us(Device& device, int64_t max_process_bytes) {
  DeviceMemory& memory = device.memory();
  if (memory.info().process + 2 * kCopiedBytes > max_process_bytes) return {};
  const Block block(memory);
  if (block.data() == nullptr) return {};
  std::optional<HostBuffer> host;
  try {
    host.emplace(memory, kHostBytes);
  } catch (const std::bad_alloc&) {
    return {};
  } catch (const DeviceError&) {
    return {};
  }
  return measure(device, block.data(), host->data());
}

}  // namespace headroom
