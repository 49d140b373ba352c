#include "device/cuda/cuda_stream_pool.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_gpu.h"
#include "device/cuda/current_device.h"

namespace headroom::cuda {
namespace {

// A pool grows by this many bytes at a time, past its maximum: 16 MiB on an H200, driver 580.159.04
// (bench/neighbors.py). A maximum that is a multiple is not exceeded.
constexpr size_t kGrowth = size_t{32} << 20;

}  // namespace

CudaStreamPool::CudaStreamPool(const StreamOrderedPoolSettings& settings, int ordinal) : ordinal_(ordinal) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  const CurrentDevice device(ordinal);
  size_t free = 0, card = 0;
  HR_CHECK(cudaMemGetInfo(&free, &card));
  // Zero is the driver's own maximum; a maximum above the card's memory is refused.
  const auto most = static_cast<size_t>(settings.max_bytes);
  properties.maxSize = most >= card ? 0 : most >= kGrowth ? most / kGrowth * kGrowth : most;
  HR_CHECK(cudaMemPoolCreate(&pool_, &properties));
  auto threshold = static_cast<uint64_t>(settings.release_threshold_bytes);
  HR_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
}

CudaStreamPool::~CudaStreamPool() {
  trim(0);
  cudaMemPoolDestroy(pool_);
}

void* CudaStreamPool::try_allocate(int64_t bytes, Stream stream) {
  const CurrentDevice device(ordinal_);
  void* pointer = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&pointer, static_cast<size_t>(bytes), pool_, stream_of(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // no room is an answer here, not an error to be found later
    return nullptr;
  }
  HR_CHECK(status);
  return pointer;
}

void CudaStreamPool::release(void* pointer, int64_t, Stream stream) noexcept {
  const CurrentDevice device(ordinal_);
  cudaFreeAsync(pointer, stream_of(stream));
}

void CudaStreamPool::trim(int64_t keep_bytes) noexcept {
  const CurrentDevice device(ordinal_);
  cudaDeviceSynchronize();  // memory that streams still use is not idle yet
  cudaMemPoolTrimTo(pool_, static_cast<size_t>(keep_bytes));
}

int64_t CudaStreamPool::reserved_bytes() const {
  return attribute(cudaMemPoolAttrReservedMemCurrent);
}

int64_t CudaStreamPool::used_bytes() const {
  return attribute(cudaMemPoolAttrUsedMemCurrent);
}

int64_t CudaStreamPool::attribute(cudaMemPoolAttr which) const {
  uint64_t bytes = 0;
  return cudaMemPoolGetAttribute(pool_, which, &bytes) == cudaSuccess ? static_cast<int64_t>(bytes) : 0;
}

}  // namespace headroom::cuda
