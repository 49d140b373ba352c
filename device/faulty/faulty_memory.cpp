#include "device/faulty/faulty_memory.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

// A pool whose n-th allocation fails.
class FaultyStreamPool final : public StreamOrderedPool {
 public:
  FaultyStreamPool(std::unique_ptr<StreamOrderedPool> upstream, FaultInjector& faults)
      : upstream_(std::move(upstream)), faults_(faults) {}

  void* try_allocate(int64_t bytes, Stream stream) override {
    return faults_.next_call_fails() ? nullptr : upstream_->try_allocate(bytes, stream);
  }
  void release(void* pointer, int64_t bytes, Stream stream) noexcept override {
    upstream_->release(pointer, bytes, stream);
  }
  void trim(int64_t keep_bytes) noexcept override { upstream_->trim(keep_bytes); }
  int64_t reserved_bytes() const override { return upstream_->reserved_bytes(); }
  int64_t used_bytes() const override { return upstream_->used_bytes(); }

 private:
  const std::unique_ptr<StreamOrderedPool> upstream_;
  FaultInjector& faults_;
};

}  // namespace

std::optional<PhysicalBlock> FaultyVirtualMemory::try_create(int64_t bytes) {
  if (faults_.next_call_fails()) return std::nullopt;
  // Checks this only after a drop of capacity: otherwise upstream knows better.
  if (faults_.dropped_bytes() > 0 && bytes > memory_.info().free) return std::nullopt;
  return upstream_.try_create(bytes);
}

FaultyMemory::FaultyMemory(DeviceMemory& upstream, FaultInjector& faults)
    : upstream_(upstream), faults_(faults) {
  if (VirtualMemory* memory = upstream.virtual_memory()) virtual_memory_.emplace(*memory, *this, faults);
}

void* FaultyMemory::try_allocate(int64_t bytes) {
  if (faults_.next_call_fails()) return nullptr;
  // Checks this only after a drop of capacity: otherwise upstream knows better.
  if (faults_.dropped_bytes() > 0 && round_up(bytes, granularity_bytes()) > info().free) return nullptr;
  return upstream_.try_allocate(bytes);
}

void FaultyMemory::count_copy() {
  if (!faults_.next_call_fails()) return;
  throw DeviceError("cudaMemcpy", "cudaErrorUnknown", "injected fault", "FaultyMemory");
}

void FaultyMemory::copy_to_device(void* device, const void* host, int64_t bytes) {
  count_copy();
  upstream_.copy_to_device(device, host, bytes);
}

void FaultyMemory::copy_to_host(void* host, const void* device, int64_t bytes) {
  count_copy();
  upstream_.copy_to_host(host, device, bytes);
}

void FaultyMemory::copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) {
  count_copy();
  upstream_.copy_to_device(device, host, bytes, stream);
}

void FaultyMemory::copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) {
  count_copy();
  upstream_.copy_to_host(host, device, bytes, stream);
}

void* FaultyMemory::allocate_host(int64_t bytes) {
  if (faults_.next_call_fails()) {
    throw DeviceError("cudaHostAlloc", "cudaErrorMemoryAllocation", "injected fault", "FaultyMemory");
  }
  return upstream_.allocate_host(bytes);
}

std::unique_ptr<StreamOrderedPool> FaultyMemory::make_stream_ordered_pool(
    const StreamOrderedPoolSettings& settings) {
  std::unique_ptr<StreamOrderedPool> pool = upstream_.make_stream_ordered_pool(settings);
  return pool == nullptr ? nullptr : std::make_unique<FaultyStreamPool>(std::move(pool), faults_);
}

MemoryInfo FaultyMemory::info() const {
  MemoryInfo info = upstream_.info();
  const int64_t dropped = std::min(faults_.dropped_bytes(), info.free);
  info.free -= dropped;
  info.others += dropped;
  info.peak_used = std::max(info.peak_used, info.used());
  return info;
}

}  // namespace headroom
