// PyTorch's CUDA allocator, called from C++; it obeys PYTORCH_CUDA_ALLOC_CONF. bench/allocators builds
// it against python3's PyTorch.
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <exception>
#include <iterator>

#include "bench/peers/peer.h"

namespace {

namespace torch_allocator = c10::cuda::CUDACachingAllocator;

int64_t calls_before = 0;

int64_t all_driver_calls() {
  const auto stats = torch_allocator::getDeviceStats(0);
  return stats.num_device_alloc + stats.num_device_free;
}

int start() {
  torch_allocator::init(1);
  torch_allocator::emptyCache();
  torch_allocator::resetPeakStats(0);
  calls_before = all_driver_calls();
  return 1;
}

void* allocate(size_t bytes, void* stream) {
  try {
    return torch_allocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void deallocate(void* pointer, size_t, void*) {
  torch_allocator::raw_delete(pointer);
}

int64_t reserved_peak_bytes() {
  return torch_allocator::getDeviceStats(0).reserved_bytes[0].peak;
}

int64_t driver_calls() {
  return all_driver_calls() - calls_before;
}

void trim() {
  torch_allocator::emptyCache();
}

constexpr headroom_peer kPeers[] = {
    {"pytorch", start, allocate, deallocate, reserved_peak_bytes, driver_calls, trim},
};

}  // namespace

const headroom_peer* headroom_peers(size_t* count) {
  *count = std::size(kPeers);
  return kPeers;
}
