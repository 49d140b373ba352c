#include "runtime/device/faulty/faulty_stream_pool.h"

#include <utility>

namespace headroom {

FaultyStreamPool::FaultyStreamPool(std::unique_ptr<StreamOrderedPool> upstream, FaultInjector& faults)
    : upstream_(std::move(upstream)), faults_(faults) {}

void* FaultyStreamPool::try_allocate(int64_t bytes, Stream stream) {
  return faults_.next_call_fails() ? nullptr : upstream_->try_allocate(bytes, stream);
}

void FaultyStreamPool::release(void* pointer, int64_t bytes, Stream stream) noexcept {
  upstream_->release(pointer, bytes, stream);
}

}  // namespace headroom
