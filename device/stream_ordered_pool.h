// A driver's own pool, which allocates and releases in the order of the work of streams, as cudaMallocAsync
// does. An optional part of DeviceMemory; knows no strategy.
#pragma once

#include <cstdint>

#include "device/stream.h"

namespace headroom {

struct StreamOrderedPoolSettings {
  int64_t release_threshold_bytes = 0;  // idle memory above this goes back when the device is synchronized
  int64_t max_bytes = 0;                // the pool never holds more; at most what the device has
};

// Thread-safe. Gives all that it holds back when it ends.
class StreamOrderedPool {
 public:
  virtual ~StreamOrderedPool() = default;

  // Returns at least `bytes` (> 0) of memory for later work on `stream`; null if there is no room. Memory
  // that another stream released is reused after that stream's work.
  virtual void* try_allocate(int64_t bytes, Stream stream) = 0;
  // Releases memory from try_allocate with the same `bytes` once the work on `stream` is done.
  virtual void release(void* pointer, int64_t bytes, Stream stream) noexcept = 0;
  // Waits for the device, and gives idle memory back to it until no more than `keep_bytes` are held.
  virtual void trim(int64_t keep_bytes) noexcept = 0;

  // Held from the device, and the part of it that is in use.
  virtual int64_t reserved_bytes() const = 0;
  virtual int64_t used_bytes() const = 0;
};

}  // namespace headroom
