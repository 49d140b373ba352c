#include "runtime/core/cuda/cuda_memory.h"

#include <algorithm>

#include "runtime/core/bytes.h"
#include "runtime/core/cuda/check.h"

namespace headroom::cuda {

void* CudaMemory::try_allocate(int64_t bytes) {
  void* pointer = nullptr;
  const cudaError_t status = cudaMalloc(&pointer, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // no room is an answer here, not an error to be found later
    return nullptr;
  }
  HR_CHECK(status);
  {
    const std::lock_guard lock(mutex_);
    held_ += bytes;
  }
  info();  // for the peaks
  return pointer;
}

void CudaMemory::release(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  cudaFree(pointer);
  const std::lock_guard lock(mutex_);
  held_ -= bytes;
}

void CudaMemory::copy_to_device(void* device, const void* host, int64_t bytes) {
  HR_CHECK(cudaMemcpy(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
}

void CudaMemory::copy_to_host(void* host, const void* device, int64_t bytes) {
  HR_CHECK(cudaMemcpy(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

MemoryInfo CudaMemory::info() const {
  size_t free = 0, total = 0;
  HR_CHECK(cudaMemGetInfo(&free, &total));
  const std::lock_guard lock(mutex_);
  MemoryInfo info;
  info.total = static_cast<int64_t>(total);
  info.free = static_cast<int64_t>(free);
  info.process = held_;
  info.others = std::max<int64_t>(0, info.used() - info.process);
  peak_used_ = std::max(peak_used_, info.used());
  peak_process_ = std::max(peak_process_, info.process);
  info.peak_used = peak_used_;
  info.peak_process = peak_process_;
  return info;
}

int64_t CudaMemory::granularity_bytes() const {
  return 2 * kMiB;  // cudaMalloc's on every GPU since Pascal
}

}  // namespace headroom::cuda
