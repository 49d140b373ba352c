// The allocators of the CUDA toolkit: the driver's stream-ordered pool and CUB's caching allocator.
#include <cuda_runtime.h>

#include <atomic>
#include <cub/util_allocator.cuh>
#include <iterator>
#include <memory>

#include "bench/peers/peer.h"

namespace {

cudaMemPool_t pool = nullptr;
std::atomic<int64_t> pool_calls = 0;

void end_pool() {
  if (pool == nullptr) return;
  cudaDeviceSynchronize();
  cudaMemPoolDestroy(pool);
  pool = nullptr;
}

int start_pool() {
  end_pool();
  pool_calls = 0;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  if (cudaMemPoolCreate(&pool, &properties) != cudaSuccess) return 0;
  uint64_t keep = UINT64_MAX;  // without it each wait for the device empties the pool
  return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess;
}

void* allocate_from_pool(size_t bytes, void* stream) {
  void* pointer = nullptr;
  pool_calls.fetch_add(1, std::memory_order_relaxed);
  return cudaMallocFromPoolAsync(&pointer, bytes, pool, static_cast<cudaStream_t>(stream)) == cudaSuccess
             ? pointer
             : nullptr;
}

void free_to_pool(void* pointer, size_t, void* stream) {
  pool_calls.fetch_add(1, std::memory_order_relaxed);
  cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream));
}

int64_t pool_peak() {
  uint64_t bytes = 0;
  cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &bytes);
  return static_cast<int64_t>(bytes);
}

void trim_pool() {
  cudaDeviceSynchronize();
  cudaMemPoolTrimTo(pool, 0);
}

using CachingAllocator = cub::CachingDeviceAllocator;
std::unique_ptr<CachingAllocator> cub_allocator;

// By default it keeps no block above 2 MiB and 6 MiB in all, so that training is as slow as the driver. Bins
// of powers of two up to 64 GiB, all kept, are its best setting.
int start_cub() {
  cub_allocator = std::make_unique<CachingAllocator>(2, 9, 36, CachingAllocator::INVALID_SIZE, true);
  return 1;
}

void* allocate_from_cub(size_t bytes, void* stream) {
  void* pointer = nullptr;
  return cub_allocator->DeviceAllocate(&pointer, bytes, static_cast<cudaStream_t>(stream)) == cudaSuccess
             ? pointer
             : nullptr;
}

void free_to_cub(void* pointer, size_t, void*) {
  cub_allocator->DeviceFree(pointer);
}

// It frees nothing until the driver refuses memory, so its present size is its peak.
int64_t cub_held() {
  int64_t bytes = 0;
  for (const auto& [device, held] : cub_allocator->cached_bytes) {
    bytes += static_cast<int64_t>(held.free + held.live);
  }
  return bytes;
}

int64_t unknown() {
  return -1;
}

void trim_cub() {
  cub_allocator->FreeAllCached();
}

constexpr headroom_peer kPeers[] = {
    {"cudaMallocAsync", start_pool, allocate_from_pool, free_to_pool, pool_peak,
     [] { return pool_calls.load(); }, trim_pool},
    {"cub", start_cub, allocate_from_cub, free_to_cub, cub_held, unknown, trim_cub},
};

}  // namespace

const headroom_peer* headroom_peers(size_t* count) {
  *count = std::size(kPeers);
  return kPeers;
}
