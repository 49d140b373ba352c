// The host's own memory as device memory, up to a capacity. Knows no strategy.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device_memory.h"
#include "device/host/host_pages.h"
#include "device/host/host_stream_pool.h"
#include "device/host/host_virtual_memory.h"
#include "device/host/memory_ledger.h"

namespace headroom {

class CpuMemory final : public DeviceMemory {
 public:
  static constexpr int64_t kPageBytes = int64_t{2} << 20;  // of virtual memory: a large page of the host

  // `streams` must outlive this and its pools.
  CpuMemory(int64_t capacity_bytes, SimulatedStreams& streams);

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  using DeviceMemory::copy_to_device;
  using DeviceMemory::copy_to_host;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  VirtualMemory* virtual_memory() override {
    return virtual_memory_.is_supported() ? &virtual_memory_ : nullptr;
  }
  MemoryInfo info() const override { return ledger_.info(); }
  int64_t granularity_bytes() const override;
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  bool is_host_memory() const override { return true; }

 private:
  SimulatedStreams& streams_;
  MemoryLedger ledger_;
  HostPages pages_;
  HostVirtualMemory virtual_memory_;
};

}  // namespace headroom
