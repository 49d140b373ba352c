// The counts of one allocator. Knows no strategy and no lock.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace headroom {

// Bytes of one kind: now, at the peak, and in total.
struct Gauge {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t total = 0;

  void add(int64_t bytes) {
    current += bytes;
    if (bytes > 0) total = sum_of_bytes(total, bytes);
    if (current > peak) peak = current;
  }
};

// Counts of one allocator since it was made.
struct Statistics {
  Gauge requested;  // as callers asked
  Gauge allocated;  // blocks in use, with rounding and unsplit remainders
  Gauge active;     // allocated blocks, and freed blocks that other streams still use
  Gauge reserved;   // held from the driver
  int64_t allocations = 0;
  int64_t deallocations = 0;
  int64_t driver_allocations = 0;
  int64_t driver_releases = 0;
  int64_t driver_mappings = 0;  // pages mapped and unmapped
  int64_t retries = 0;          // allocations that succeeded only after a trim
  int64_t failures = 0;
  int64_t stream_waits = 0;        // reuses for which one stream waited for another
  int64_t largest_free_block = 0;  // inside reserved memory

  int64_t driver_calls() const { return driver_allocations + driver_releases + driver_mappings; }

  // Share of the idle reserved bytes outside the largest free block; 0 when nothing is idle.
  double fragmentation() const {
    const int64_t idle = reserved.current - allocated.current;
    return idle <= 0 ? 0 : static_cast<double>(idle - largest_free_block) / static_cast<double>(idle);
  }
};

}  // namespace headroom
