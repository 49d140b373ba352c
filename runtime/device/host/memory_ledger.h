// The accounts of a device memory that is simulated or borrowed from the host: who holds how much of a fixed
// total. Knows no addresses.
#pragma once

#include <cstdint>
#include <mutex>

#include "runtime/device/device_memory.h"

namespace headroom {

// Thread-safe.
class MemoryLedger {
 public:
  // `total_bytes` of which other processes hold `others_bytes`. Throws InvalidArgument unless 0 <= others <=
  // total.
  MemoryLedger(int64_t total_bytes, int64_t others_bytes);

  // Takes `bytes` for this process if they are free; false if not. With `needed_bytes` above `bytes`, refuses
  // unless that much is free, as libraries do that take scratch memory while they start.
  bool try_take(int64_t bytes, int64_t needed_bytes = 0);
  void give_back(int64_t bytes) noexcept;
  MemoryInfo info() const;

 private:
  mutable std::mutex mutex_;
  MemoryInfo info_;
};

}  // namespace headroom
