// Any device memory with faults put in: the n-th driver call fails, or capacity drops. For tests of what lies
// above.
#pragma once

#include <optional>

#include "runtime/device/device_memory.h"
#include "runtime/device/faulty/fault_injector.h"
#include "runtime/device/faulty/faulty_virtual_memory.h"

namespace headroom {

class FaultyMemory final : public DeviceMemory {
 public:
  // Both must outlive this.
  FaultyMemory(DeviceMemory& upstream, FaultInjector& faults);

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  // Counts a copy that goes another way than these two. Throws DeviceError when it is the one to fail.
  void count_copy();
  void* allocate_host(int64_t bytes) override { return upstream_.allocate_host(bytes); }
  void release_host(void* pointer, int64_t bytes) noexcept override {
    upstream_.release_host(pointer, bytes);
  }
  VirtualMemory* virtual_memory() override { return virtual_memory_ ? &*virtual_memory_ : nullptr; }
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override { return upstream_.granularity_bytes(); }

 private:
  DeviceMemory& upstream_;
  FaultInjector& faults_;
  std::optional<FaultyVirtualMemory> virtual_memory_;
};

}  // namespace headroom
