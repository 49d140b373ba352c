#include "device/host/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {

MemoryLedger::MemoryLedger(int64_t total_bytes, int64_t others_bytes) {
  if (others_bytes < 0 || others_bytes > total_bytes) {
    throw InvalidArgument(fmt::format("others cannot hold {} of a device of {}", format_bytes(others_bytes),
                                      format_bytes(total_bytes)));
  }
  info_.total = total_bytes;
  info_.others = others_bytes;
  info_.free = total_bytes - others_bytes;
  info_.peak_used = info_.enough_total = others_bytes;
}

bool MemoryLedger::try_take(int64_t bytes, int64_t needed_bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t needed = std::max(bytes, needed_bytes);
  if (needed > info_.free) {
    note_refusal();
    return false;
  }
  if (!has_refused_) info_.enough_total = std::max(info_.enough_total, info_.used() + needed);
  info_.free -= bytes;
  info_.process += bytes;
  info_.peak_used = std::max(info_.peak_used, info_.used());
  info_.peak_process = std::max(info_.peak_process, info_.process);
  return true;
}

void MemoryLedger::refuse() {
  const std::lock_guard lock(mutex_);
  note_refusal();
}

void MemoryLedger::note_refusal() {
  has_refused_ = true;
  info_.enough_total = 0;
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
