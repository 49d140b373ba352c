// Any stream-ordered pool with faults put in: the n-th driver call finds no room. For tests of what lies
// above.
#pragma once

#include <memory>

#include "runtime/device/faulty/fault_injector.h"
#include "runtime/device/stream_ordered_pool.h"

namespace headroom {

class FaultyStreamPool final : public StreamOrderedPool {
 public:
  // `faults` must outlive this.
  FaultyStreamPool(std::unique_ptr<StreamOrderedPool> upstream, FaultInjector& faults);

  void* try_allocate(int64_t bytes, Stream stream) override;
  void release(void* pointer, int64_t bytes, Stream stream) noexcept override;
  void trim(int64_t keep_bytes) noexcept override { upstream_->trim(keep_bytes); }
  int64_t reserved_bytes() const override { return upstream_->reserved_bytes(); }
  int64_t used_bytes() const override { return upstream_->used_bytes(); }

 private:
  const std::unique_ptr<StreamOrderedPool> upstream_;
  FaultInjector& faults_;
};

}  // namespace headroom
