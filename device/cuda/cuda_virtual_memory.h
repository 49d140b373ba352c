// The virtual memory of one NVIDIA GPU through the driver's cuMem calls. Knows no strategy.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>

#include "device/virtual_memory.h"

namespace headroom::cuda {

class CudaVirtualMemory final : public VirtualMemory {
 public:
  // `count` gets the bytes of each creation, and before each release their negative. Makes no context.
  CudaVirtualMemory(int ordinal, std::function<void(int64_t bytes)> count);

  // False if the GPU or its driver has no virtual memory; then nothing below may be called.
  bool is_supported() const { return granularity_bytes_ > 0; }

  int64_t granularity_bytes() const override { return granularity_bytes_; }
  void* try_reserve_range(int64_t bytes) override;
  void release_range(void* base, int64_t bytes) noexcept override;
  // Throws DeviceError for a reason other than lack of memory.
  std::optional<PhysicalBlock> try_create(int64_t bytes) override;
  void release(const PhysicalBlock& block) noexcept override;
  bool try_map(void* address, const PhysicalBlock& block) override {
    return try_map_run(address, {&block, 1});
  }
  // Sets the access of all blocks in one call: it takes 30 times as long as mapping one.
  bool try_map_run(void* address, std::span<const PhysicalBlock> blocks) override;
  void unmap(void* address, const PhysicalBlock& block) noexcept override;

  // Time spent in the calls above, by the host's clock.
  double driver_time_us() const { return driver_time_us_; }

 private:
  const int ordinal_;
  const std::function<void(int64_t)> count_;
  int64_t granularity_bytes_ = 0;
  std::atomic<double> driver_time_us_ = 0;
};

}  // namespace headroom::cuda
