// A device whose memory is that of a C caller (headroom_driver). It has no pages, copies nothing and runs no
// work. Knows no strategy.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "allocators/address_ranges.h"
#include "allocators/headroom_strategy.h"
#include "device/device.h"
#include "device/host/host_captures.h"

namespace headroom {

class CallerMemory final : public DeviceMemory {
 public:
  explicit CallerMemory(const headroom_driver& driver) : driver_(driver) {}

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  using DeviceMemory::copy_to_device;
  using DeviceMemory::copy_to_host;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override { return 1; }

 private:
  const headroom_driver driver_;
  mutable std::mutex mutex_;
  AddressRanges ranges_;
  int64_t taken_bytes_ = 0, peak_bytes_ = 0;
};

class CallerStreams final : public DeviceStreams {
 public:
  explicit CallerStreams(const headroom_driver& driver) : driver_(driver) {}

  // Only waits between streams are the caller's business; the rest throws DeviceError.
  Stream new_stream() override;
  void delete_stream(Stream) noexcept override {}
  void wait(Stream stream, Stream other) override;
  std::unique_ptr<Event> record_event(Stream stream) override;
  void wait(Stream stream, const Event& event) override;
  void synchronize(Stream stream) override;

 private:
  const headroom_driver driver_;
};

class CallerDevice final : public Device {
 public:
  explicit CallerDevice(const headroom_driver& driver) : memory_(driver), streams_(driver) {}

  const DeviceInfo& info() const override { return info_; }
  void initialize() override {}
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return streams_; }
  DeviceLibraries& libraries() override { return libraries_; }
  DeviceCaptures& captures() override { return captures_; }
  KernelTarget kernel_target() override { return {}; }

 private:
  const DeviceInfo info_{"caller", "memory of the caller"};
  CallerMemory memory_;
  CallerStreams streams_;
  DeviceLibraries libraries_;
  HostCaptures captures_;
};

}  // namespace headroom
