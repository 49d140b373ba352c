// cudaMallocAsync and cudaFreeAsync on a memory pool of our own. Knows no strategy.
#pragma once

#include <cuda_runtime.h>

#include "device/stream_ordered_pool.h"

namespace headroom::cuda {

class CudaStreamPool final : public StreamOrderedPool {
 public:
  // The device's context must exist. Throws DeviceError when the driver has no such pools.
  CudaStreamPool(const StreamOrderedPoolSettings& settings, int ordinal);
  ~CudaStreamPool() override;
  CudaStreamPool(const CudaStreamPool&) = delete;
  CudaStreamPool& operator=(const CudaStreamPool&) = delete;

  void* try_allocate(int64_t bytes, Stream stream) override;
  void release(void* pointer, int64_t bytes, Stream stream) noexcept override;
  void trim(int64_t keep_bytes) noexcept override;
  int64_t reserved_bytes() const override;
  int64_t used_bytes() const override;

 private:
  int64_t attribute(cudaMemPoolAttr which) const;

  const int ordinal_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace headroom::cuda
