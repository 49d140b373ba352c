// Raw device memory, as a driver hands it out: the bottom seam. Knows no strategy and no tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "device/stream.h"
#include "device/stream_ordered_pool.h"
#include "device/virtual_memory.h"

namespace headroom {

// The driver's figures of a device's memory, in bytes.
struct MemoryInfo {
  int64_t total = 0;
  int64_t free = 0;
  int64_t process = 0;  // held by this process: context, libraries and everything allocated
  int64_t others = 0;   // held by other processes
  // `process` when the context was new: no limit below it can be kept. 0 for a context that was there before.
  int64_t context = 0;
  int64_t peak_used = 0;     // highest total - free so far, others included
  int64_t peak_process = 0;  // highest `process` so far
  // The least total with which every request so far would have found room; 0 when one found none, and where
  // the driver does not say.
  int64_t enough_total = 0;

  int64_t used() const { return total - free; }
};

// Thread-safe. Memory is aligned to at least 256 bytes, as cudaMalloc's is.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Memory of at least `bytes` (> 0), or null when there is no room. Nothing is initialised.
  virtual void* try_allocate(int64_t bytes) = 0;
  // Gives back what try_allocate returned for the same `bytes`.
  virtual void release(void* pointer, int64_t bytes) noexcept = 0;

  // Synchronous copies of `bytes`. Throw DeviceError when the driver refuses.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;

  // Queue a copy of `bytes` on a stream. The host goes on if its memory is of allocate_host, which must then
  // stay as it is until the copy is done; with other memory it may wait. Throw DeviceError, and StreamHazard
  // as DeviceStreams::queue does.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes, Stream) {
    copy_to_device(device, host, bytes);
  }
  virtual void copy_to_host(void* host, const void* device, int64_t bytes, Stream) {
    copy_to_host(host, device, bytes);
  }

  // Host memory of `bytes` (> 0) that copies fastest: page-locked for a GPU, plain here. Throws DeviceError
  // or std::bad_alloc when the host has none.
  virtual void* allocate_host(int64_t bytes) {
    return ::operator new(static_cast<size_t>(bytes), kHostAlignment);
  }
  // Gives back what allocate_host returned for the same `bytes`.
  virtual void release_host(void* pointer, int64_t) noexcept { ::operator delete(pointer, kHostAlignment); }

  // Addresses and physical memory apart, within the same total; null if the device has none.
  virtual VirtualMemory* virtual_memory() { return nullptr; }
  // A pool of the driver's own, once the device is initialised; null where there is none. The device must
  // outlive it. Throws DeviceError.
  virtual std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(const StreamOrderedPoolSettings&) {
    return nullptr;
  }

  virtual MemoryInfo info() const = 0;
  // The page that the driver hands out: one allocation never takes more than its bytes rounded up to this.
  virtual int64_t granularity_bytes() const = 0;
  // Whether the host may read and write it as its own.
  virtual bool is_host_memory() const { return false; }
  // Time spent in driver calls so far, on the device's own clock: simulated time on a simulated GPU.
  virtual double driver_time_us() const { return 0; }

 private:
  static constexpr std::align_val_t kHostAlignment{256};
};

}  // namespace headroom
