// Host memory in place of device memory. Large ranges cost nothing until they are touched, so a small machine
// can simulate a pool of 140 GiB. Counts nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/host/backing.h"

namespace headroom {

// Thread-safe.
class HostPages {
 public:
  explicit HostPages(Backing backing = Backing::kHostMemory) : backing_(backing) {}

  Backing backing() const { return backing_; }
  // Returns `bytes` (> 0) of uninitialized host memory, aligned to at least 256, or null if the host has
  // none. Without backing, returns only addresses; null if none are left.
  void* take(int64_t bytes) noexcept;
  // Releases memory from `take` with the same `bytes`; a null pointer does nothing.
  void give_back(void* pointer, int64_t bytes) noexcept;

 private:
  const Backing backing_;
  // End of the addresses not handed out yet, if there is no backing. Addresses fall, as those of cudaMalloc
  // do (see docs/notes/pytorch-memory.md), because strategies that choose the lowest of equal free blocks
  // depend on it.
  std::atomic<uintptr_t> next_address_ = uintptr_t{1} << 62;
};

}  // namespace headroom
