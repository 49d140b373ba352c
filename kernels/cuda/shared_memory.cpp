#include "kernels/cuda/shared_memory.h"

#include "device/cuda/check.h"

namespace headroom::cuda {

int64_t shared_limit_bytes(const CudaGpu& device) {
  int bytes = 0;
  HR_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.ordinal()));
  return bytes;
}

void allow_shared_memory(const void* kernel, const CudaGpu& device) {
  cudaFuncAttributes attributes{};
  HR_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const int64_t bytes = shared_limit_bytes(device) - static_cast<int64_t>(attributes.sharedSizeBytes);
  HR_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace headroom::cuda
