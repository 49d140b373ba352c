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
  // `bytes` (> 0) of uninitialised host memory, aligned to at least 256; null when the host has none. Without
  // backing only addresses.
  void* take(int64_t bytes) noexcept;
  // Gives back what take returned for the same `bytes`; a null pointer does nothing.
  void give_back(void* pointer, int64_t bytes) noexcept;

 private:
  const Backing backing_;
  // Without backing: the end of what is not handed out yet. Addresses fall, as those of cudaMalloc do (see
  // docs/notes/pytorch-memory.md): strategies that take the lowest of equal free blocks depend on it.
  std::atomic<uintptr_t> next_address_ = uintptr_t{1} << 62;
};

}  // namespace headroom
