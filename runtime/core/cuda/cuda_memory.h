// The memory of one NVIDIA GPU through cudaMalloc and cudaFree. Knows no strategy and no library.
#pragma once

#include <mutex>

#include "runtime/core/device_memory.h"

namespace headroom::cuda {

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int ordinal) : ordinal_(ordinal) {}

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override;

 private:
  const int ordinal_;
  mutable std::mutex mutex_;
  mutable int64_t peak_used_ = 0, peak_process_ = 0;
  int64_t held_ = 0;  // by try_allocate
};

}  // namespace headroom::cuda
