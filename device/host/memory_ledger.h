// Accounts for the users of a fixed total, for device memory that is simulated or the host's. Knows no
// addresses.
#pragma once

#include <cstdint>
#include <mutex>

#include "device/device_memory.h"

namespace headroom {

// Thread-safe.
class MemoryLedger {
 public:
  // Other processes hold `others_bytes` of `total_bytes`. Throws InvalidArgument unless 0 <= others <= total.
  MemoryLedger(int64_t total_bytes, int64_t others_bytes);

  // Takes `bytes` for this process if they are free; otherwise false. With `needed_bytes` above `bytes` it
  // requires that much to be free, as libraries do that use scratch memory while they start.
  // A refusal is for good in `enough_total` of info().
  bool try_take(int64_t bytes, int64_t needed_bytes = 0);
  // Notes a refusal for another reason.
  void refuse();
  void give_back(int64_t bytes) noexcept;
  MemoryInfo info() const;

 private:
  void note_refusal();

  mutable std::mutex mutex_;
  MemoryInfo info_;
  bool has_refused_ = false;
};

}  // namespace headroom
