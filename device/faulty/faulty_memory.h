// Any device memory with faults put in: the n-th driver call fails, or capacity drops. For tests.
#pragma once

#include <optional>

#include "device/device_memory.h"
#include "device/faulty/fault_injector.h"

namespace headroom {

class FaultyVirtualMemory final : public VirtualMemory {
 public:
  // `memory` is the faulty memory that this belongs to: it knows the capacity after a drop. All must outlive
  // this.
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

class FaultyMemory final : public DeviceMemory {
 public:
  // Both must outlive this.
  FaultyMemory(DeviceMemory& upstream, FaultInjector& faults);

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override { upstream_.release(pointer, bytes); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override;
  // Counts a copy made by other functions. Throws DeviceError if it is the one to fail.
  void count_copy();
  void* allocate_host(int64_t bytes) override;
  void release_host(void* pointer, int64_t bytes) noexcept override {
    upstream_.release_host(pointer, bytes);
  }
  VirtualMemory* virtual_memory() override { return virtual_memory_ ? &*virtual_memory_ : nullptr; }
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override { return upstream_.granularity_bytes(); }
  bool is_host_memory() const override { return upstream_.is_host_memory(); }
  double driver_time_us() const override { return upstream_.driver_time_us(); }

 private:
  DeviceMemory& upstream_;
  FaultInjector& faults_;
  std::optional<FaultyVirtualMemory> virtual_memory_;
};

}  // namespace headroom
