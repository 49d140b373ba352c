#include "allocators/c/caller_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace headroom {
namespace {

[[noreturn]] void refuse(const char* call) {
  throw DeviceError(call, "UNSUPPORTED", "memory of the caller can only be reserved and released", "");
}

}  // namespace

void* CallerMemory::try_allocate(int64_t bytes) {
  void* const pointer = driver_.reserve(driver_.context, bytes);
  if (pointer == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto misuse = [&](const char* why) {
    throw DeviceError(
        "reserve", "MISUSE",
        fmt::format("the driver of the caller returned {} for {} bytes: {}", pointer, bytes, why), "");
  };
  if (reinterpret_cast<uintptr_t>(pointer) % 256 != 0) misuse("not aligned to 256 bytes");
  if (!ranges_.add(pointer, bytes)) misuse("it overlaps memory that it returned before");
  taken_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, taken_bytes_);
  return pointer;
}

void CallerMemory::release(void* pointer, int64_t bytes) noexcept {
  driver_.unreserve(driver_.context, pointer, bytes);
  const std::lock_guard lock(mutex_);
  ranges_.remove(pointer);
  taken_bytes_ -= bytes;
}

void CallerMemory::copy_to_device(void*, const void*, int64_t) {
  refuse("copy_to_device");
}

void CallerMemory::copy_to_host(void*, const void*, int64_t) {
  refuse("copy_to_host");
}

MemoryInfo CallerMemory::info() const {
  // A driver without a bound may say so by any number.
  constexpr int64_t kMost = int64_t{1} << 60;
  const int64_t free_bytes = std::clamp<int64_t>(driver_.reservable_bytes(driver_.context), 0, kMost);
  const std::lock_guard lock(mutex_);
  MemoryInfo info;
  info.free = free_bytes;
  info.total = free_bytes + taken_bytes_;
  info.process = taken_bytes_;
  info.peak_used = info.peak_process = peak_bytes_;
  return info;
}

Stream CallerStreams::new_stream() {
  refuse("new_stream");
}

void CallerStreams::wait(Stream stream, Stream other) {
  if (driver_.follow != nullptr) driver_.follow(driver_.context, stream.handle, other.handle);
}

std::unique_ptr<Event> CallerStreams::record_event(Stream) {
  refuse("record_event");
}

void CallerStreams::wait(Stream, const Event&) {
  refuse("wait");
}

void CallerStreams::synchronize(Stream) {
  refuse("synchronize");
}

}  // namespace headroom
