// Passes every request to the driver's own pool (cudaMallocAsync). Does not know how that pool works.
#pragma once

#include <memory>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/strategies/strategy_options.h"
#include "base/offset_table.h"
#include "device/stream_ordered_pool.h"

namespace headroom {

inline constexpr StrategyOption kStreamOrderedOptions[] = {
    {"release_threshold", "SIZE", "none",
     "idle memory above this is released whenever the host waits for the device"},
};

class StreamOrderedAllocator final : public Allocator {
 public:
  // Throws InvalidArgument if the device has no such pool, and the exceptions of making one.
  StreamOrderedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                         int64_t release_threshold_bytes);
  ~StreamOrderedAllocator() override;

 private:
  struct Live {
    void* pointer = nullptr;  // null: not live
    int64_t bytes = 0;
    Stream stream;
    int32_t next_unused = OffsetTable::kNone;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;
  int64_t reserved_now() const override { return pool_->reserved_bytes(); }

  std::unique_ptr<StreamOrderedPool> pool_;
  std::vector<Live> blocks_;  // live ones and places for others
  int32_t unused_ = OffsetTable::kNone;
  OffsetTable live_{kAlignment};  // positions in blocks_ by address
  int64_t live_bytes_ = 0;
};

}  // namespace headroom
