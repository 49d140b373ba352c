// Any virtual memory with faults put in: the n-th reservation, creation or mapping fails, or capacity drops.
// For tests of what lies above.
#pragma once

#include "runtime/device/device_memory.h"
#include "runtime/device/faulty/fault_injector.h"

namespace headroom {

class FaultyVirtualMemory final : public VirtualMemory {
 public:
  // `memory` is the faulty one that this belongs to: it knows what a drop of capacity has left. All must
  // outlive this.
  FaultyVirtualMemory(VirtualMemory& upstream, const DeviceMemory& memory, FaultInjector& faults)
      : upstream_(upstream), memory_(memory), faults_(faults) {}

  int64_t granularity_bytes() const override { return upstream_.granularity_bytes(); }
  void* try_reserve_range(int64_t bytes) override {
    return faults_.next_call_fails() ? nullptr : upstream_.try_reserve_range(bytes);
  }
  void release_range(void* base, int64_t bytes) noexcept override { upstream_.release_range(base, bytes); }
  std::optional<PhysicalBlock> try_create(int64_t bytes) override;
  void release(const PhysicalBlock& block) noexcept override { upstream_.release(block); }
  bool try_map(void* address, const PhysicalBlock& block) override {
    return !faults_.next_call_fails() && upstream_.try_map(address, block);
  }
  void unmap(void* address, const PhysicalBlock& block) noexcept override { upstream_.unmap(address, block); }

 private:
  VirtualMemory& upstream_;
  const DeviceMemory& memory_;
  FaultInjector& faults_;
};

}  // namespace headroom
