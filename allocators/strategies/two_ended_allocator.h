// One segment with exact best fit: small blocks are cut from the high end of a free block, large ones from
// the low end. Does not grow.
#pragma once

#include "allocators/strategies/segment_allocator.h"
#include "allocators/strategies/strategy_options.h"

namespace headroom {

// The size of a large block. With 32 to 64 MiB four traces of training runs need the same capacity within
// 0.3 %; otherwise up to 2 % more.
inline constexpr int64_t kTwoEndedLargeBytes = int64_t{48} << 20;

inline constexpr StrategyOption kTwoEndedOptions[] = {
    {"large", "SIZE", "48MiB", "blocks of at least this size lie at the low end"},
};

class TwoEndedAllocator final : public SegmentAllocator {
 public:
  // Takes all of the limit at once, or nine tenths repeatedly while the device has less. Throws OutOfMemory
  // when it has nothing at all.
  TwoEndedAllocator(Device& device, std::string name, Limit limit, int64_t large_bytes);

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;

  bool take_segment(int64_t least_bytes);

  BlockStore& store_ = new_store();
  const int64_t large_bytes_;
};

}  // namespace headroom
