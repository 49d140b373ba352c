// Raw device memory, as a driver hands it out: the bottom seam. Knows no strategy and no tensor.
#pragma once

#include <cstdint>
#include <memory>

#include "device/host_memory.h"
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
  // The smallest total with which every request so far would have succeeded; 0 if one failed, or if the
  // driver does not tell.
  int64_t enough_total = 0;

  int64_t used() const { return total - free; }
};

// Thread-safe. Memory is aligned to at least 256 bytes, as cudaMalloc's is.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Returns at least `bytes` (> 0) of uninitialized memory, or null if there is not enough.
  virtual void* try_allocate(int64_t bytes) = 0;
  // Releases memory from try_allocate with the same `bytes`.
  virtual void release(void* pointer, int64_t bytes) noexcept = 0;

  // Synchronous copies of `bytes`. Throw DeviceError when the driver refuses.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;

  // Queue a copy of `bytes` on a stream. With memory of allocate_host, which must not change until the copy
  // is done, the host continues; with other memory it may wait. Throw DeviceError, and StreamHazard as
  // DeviceStreams::queue does.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes, Stream) {
    copy_to_device(device, host, bytes);
  }
  virtual void copy_to_host(void* host, const void* device, int64_t bytes, Stream) {
    copy_to_host(host, device, bytes);
  }

  // Host memory of `bytes` (> 0) that copies fastest: page-locked for a GPU, plain here. Throws DeviceError
  // or HostOutOfMemory when the host has none.
  virtual void* allocate_host(int64_t bytes) { return allocate_host_memory(bytes); }
  // Releases memory from allocate_host with the same `bytes`.
  virtual void release_host(void* pointer, int64_t) noexcept { release_host_memory(pointer); }

  // Addresses and physical memory apart, within the same total; null if the device has none.
  virtual VirtualMemory* virtual_memory() { return nullptr; }
  // Returns a pool of the driver's own, once the device is initialized; null if there is none. The device
  // must outlive it. Throws DeviceError.
  virtual std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(const StreamOrderedPoolSettings&) {
    return nullptr;
  }

  virtual MemoryInfo info() const = 0;
  // The page that the driver hands out: one allocation never takes more than its bytes rounded up to this.
  virtual int64_t granularity_bytes() const = 0;
  // Returns true if the host can read and write the memory directly.
  virtual bool is_host_memory() const { return false; }
  // Time spent in driver calls so far, on the device's own clock: simulated time on a simulated GPU.
  virtual double driver_time_us() const { return 0; }

 private:
};

}  // namespace headroom
