// The memory strategy seam: who gets which bytes of one DeviceMemory. Knows no tensors, no ops and no graph.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/core/device.h"
#include "runtime/core/errors.h"

namespace headroom {

// Bytes of one kind, now and at their highest.
struct Gauge {
  int64_t current = 0;
  int64_t peak = 0;

  void add(int64_t bytes) {
    current += bytes;
    if (current > peak) peak = current;
  }
};

// Counts of one allocator since it was made.
struct Statistics {
  Gauge requested;  // what callers asked for
  Gauge allocated;  // the blocks they got: rounding and unsplit remainders included
  Gauge reserved;   // what is held from the driver
  int64_t allocations = 0;
  int64_t deallocations = 0;
  int64_t driver_allocations = 0;
  int64_t driver_releases = 0;
  int64_t retries = 0;  // allocations that succeeded only after a trim
  int64_t failures = 0;
  int64_t largest_free_block = 0;  // inside what is reserved

  // Share of the idle reserved bytes that is outside the largest free block: 0 when nothing is idle, so never NaN
  // (TensorFlow's own formula divides by zero there).
  double fragmentation() const;
};

// A strategy over one DeviceMemory. Public calls check, count and lock; strategies implement the private ones.
// The caller gives the size back when it deallocates, so no strategy needs a header in device memory.
class Allocator {
 public:
  // Every address and size is rounded to this (TensorFlow's and RMM's figure, and cudaMalloc's guarantee).
  static constexpr int64_t kAlignment = 256;

  explicit Allocator(DeviceMemory& memory) : memory_(memory) {}
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Memory of `bytes` (>= 0) for use on `stream`; zero bytes give a null pointer. Trims and retries once before it
  // throws OutOfMemory, whose facts are filled but for op and tensor; throws InvalidArgument for a negative size.
  void* allocate(int64_t bytes, Stream stream = {});
  // Takes back what allocate returned for the same `bytes`. A null pointer does nothing.
  void deallocate(void* pointer, int64_t bytes, Stream stream = {}) noexcept;
  // Gives what is reserved and wholly idle back to the driver; returns the bytes given back.
  int64_t trim() noexcept;

  Statistics statistics() const;
  // The cap this strategy was given, if any.
  virtual std::optional<int64_t> limit_bytes() const { return std::nullopt; }
  // "grab-all": the name under which the strategy was chosen.
  virtual std::string name() const = 0;

 protected:
  DeviceMemory& memory() const { return memory_; }
  // Driver calls of strategies go through these two, which count them. Null when there is no room.
  void* reserve(int64_t bytes);
  void unreserve(void* pointer, int64_t bytes) noexcept;
  // Records that the block handed out for a request is larger than the request.
  struct Block {
    void* pointer = nullptr;
    int64_t bytes = 0;  // the size of the block, at least what was asked
  };

 private:
  // A block of at least `bytes` (a multiple of kAlignment), or a null one when there is no room.
  virtual Block do_allocate(int64_t bytes, Stream stream) = 0;
  // Takes the block back and returns its size.
  virtual int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept = 0;
  virtual int64_t do_trim() noexcept { return 0; }
  virtual int64_t largest_free_block() const = 0;

  DeviceMemory& memory_;
  mutable std::mutex mutex_;
  Statistics statistics_;
};

}  // namespace headroom
