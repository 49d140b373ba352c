// What an allocator counts. Knows no strategy and no lock.
#pragma once

#include <cstdint>

namespace headroom {

// Bytes of one kind: now, at their highest, and all that ever came.
struct Gauge {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t total = 0;

  void add(int64_t bytes) {
    current += bytes;
    if (bytes > 0) total += bytes;
    if (current > peak) peak = current;
  }
};

// Counts of one allocator since it was made.
struct Statistics {
  Gauge requested;  // what callers asked for
  Gauge allocated;  // the blocks they got: rounding and unsplit remainders included
  Gauge active;     // the same and the blocks that were given back while other streams still used them
  Gauge reserved;   // what is held from the driver
  int64_t allocations = 0;
  int64_t deallocations = 0;
  int64_t driver_allocations = 0;
  int64_t driver_releases = 0;
  int64_t driver_mappings = 0;  // pages mapped and unmapped
  int64_t retries = 0;          // allocations that succeeded only after a trim
  int64_t failures = 0;
  int64_t stream_waits = 0;        // blocks that another stream had to wait for
  int64_t largest_free_block = 0;  // inside what is reserved

  // All that were made.
  int64_t driver_calls() const { return driver_allocations + driver_releases + driver_mappings; }

  // Share of the idle reserved bytes that is outside the largest free block: 0 when nothing is idle, so never
  // NaN (TensorFlow's own formula divides by zero there).
  double fragmentation() const {
    const int64_t idle = reserved.current - allocated.current;
    return idle <= 0 ? 0 : static_cast<double>(idle - largest_free_block) / static_cast<double>(idle);
  }
};

}  // namespace headroom
