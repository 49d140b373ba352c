#include "runtime/device/host/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom {

MemoryLedger::MemoryLedger(int64_t total_bytes, int64_t others_bytes) {
  if (others_bytes < 0 || others_bytes > total_bytes) {
    throw InvalidArgument(fmt::format("others cannot hold {} of a device of {}", format_bytes(others_bytes),
                                      format_bytes(total_bytes)));
  }
  info_.total = total_bytes;
  info_.others = others_bytes;
  info_.free = total_bytes - others_bytes;
  info_.peak_used = others_bytes;
}

bool MemoryLedger::try_take(int64_t bytes, int64_t needed_bytes) {
  const std::lock_guard lock(mutex_);
  if (std::max(bytes, needed_bytes) > info_.free) return false;
  info_.free -= bytes;
  info_.process += bytes;
  info_.peak_used = std::max(info_.peak_used, info_.used());
  info_.peak_process = std::max(info_.peak_process, info_.process);
  return true;
}

void MemoryLedger::give_back(int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  info_.free += bytes;
  info_.process -= bytes;
}

MemoryInfo MemoryLedger::info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

}  // namespace headroom
