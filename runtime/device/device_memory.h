// Raw device memory, as a driver gives it: the bottom seam. Knows no strategy, no tensor and no stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "runtime/device/virtual_memory.h"

namespace headroom {

// What the driver says of a device's memory, in bytes.
struct MemoryInfo {
  int64_t total = 0;
  int64_t free = 0;
  int64_t process = 0;       // held by this process: context, libraries and everything allocated
  int64_t others = 0;        // held by other processes
  int64_t peak_used = 0;     // highest total - free so far, others included
  int64_t peak_process = 0;  // highest `process` so far

  int64_t used() const { return total - free; }
};

// Thread-safe. Bytes handed out are aligned to 256 at least, as cudaMalloc's are.
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

  // Host memory of `bytes` (> 0) that copies fastest: page-locked for a GPU, plain here. Throws DeviceError
  // or std::bad_alloc when the host has none.
  virtual void* allocate_host(int64_t bytes) { return ::operator new(static_cast<size_t>(bytes)); }
  // Gives back what allocate_host returned for the same `bytes`.
  virtual void release_host(void* pointer, int64_t) noexcept { ::operator delete(pointer); }

  // Addresses and physical memory apart, of the same total as above; null where the device has no such thing.
  virtual VirtualMemory* virtual_memory() { return nullptr; }

  virtual MemoryInfo info() const = 0;
  // The page that the driver hands out: one allocation never takes more than its bytes rounded up to this.
  virtual int64_t granularity_bytes() const = 0;
};

}  // namespace headroom
