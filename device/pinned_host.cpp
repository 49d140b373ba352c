#include "device/pinned_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/host_memory.h"

namespace headroom {

void* PinnedHostMemory::try_allocate(int64_t bytes) {
  const auto failure = [&](const char* status, const std::string& why) {
    return DeviceError(
        fmt::format("no page-locked host memory of {} for values that --memory moves there: {}; pass a "
                    "smaller --host-memory, or 0",
                    format_bytes(bytes), why),
        "cudaHostAlloc", status);
  };
  void* pointer = nullptr;
  try {
    pointer = device_.allocate_host(bytes);
  } catch (const std::bad_alloc&) {
    throw failure("cudaErrorMemoryAllocation", "the host has no room");
  } catch (const DeviceError& error) {
    throw failure(error.status().c_str(), error.what());
  }
  const std::lock_guard lock(mutex_);
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  return pointer;
}

void PinnedHostMemory::release(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  device_.release_host(pointer, bytes);
  const std::lock_guard lock(mutex_);
  held_ -= bytes;
}

void PinnedHostMemory::copy_to_device(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void PinnedHostMemory::copy_to_host(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

MemoryInfo PinnedHostMemory::info() const {
  const std::lock_guard lock(mutex_);
  MemoryInfo info;
  info.total = host_total_bytes();
  info.process = held_;
  info.peak_process = info.peak_used = peak_;
  info.free = std::max<int64_t>(0, info.total - held_);
  return info;
}

}  // namespace headroom
