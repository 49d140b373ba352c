#include "runtime/device/faulty/faulty_memory.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom {
FaultyMemory::FaultyMemory(DeviceMemory& upstream, FaultInjector& faults)
    : upstream_(upstream), faults_(faults) {
  if (VirtualMemory* memory = upstream.virtual_memory()) virtual_memory_.emplace(*memory, *this, faults);
}

void* FaultyMemory::try_allocate(int64_t bytes) {
  if (faults_.next_call_fails()) return nullptr;
  // Only when capacity has dropped: otherwise upstream knows better what fits.
  if (faults_.dropped_bytes() > 0 && round_up(bytes, granularity_bytes()) > info().free) return nullptr;
  return upstream_.try_allocate(bytes);
}

void FaultyMemory::release(void* pointer, int64_t bytes) noexcept {
  upstream_.release(pointer, bytes);
}

void FaultyMemory::count_copy() {
  if (!faults_.next_call_fails()) return;
  throw DeviceError("cudaMemcpy", "cudaErrorUnknown", "injected fault", "FaultyMemory");
}

void FaultyMemory::copy_to_device(void* device, const void* host, int64_t bytes) {
  count_copy();
  upstream_.copy_to_device(device, host, bytes);
}

void FaultyMemory::copy_to_host(void* host, const void* device, int64_t bytes) {
  count_copy();
  upstream_.copy_to_host(host, device, bytes);
}

MemoryInfo FaultyMemory::info() const {
  MemoryInfo info = upstream_.info();
  const int64_t dropped = std::min(faults_.dropped_bytes(), info.free);
  info.free -= dropped;
  info.others += dropped;
  info.peak_used = std::max(info.peak_used, info.used());
  return info;
}

}  // namespace headroom
