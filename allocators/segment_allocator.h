// What strategies share that hold segments from the driver and cut them into blocks. Knows no rule of how
// large a segment is, nor which block serves a request.
#pragma once

#include "allocators/allocator.h"
#include "allocators/block_store.h"

namespace headroom {

class SegmentAllocator : public Allocator {
 public:
  ~SegmentAllocator() override;

 protected:
  using Index = BlockStore::Index;
  using Allocator::Allocator;

  // A new segment of `bytes` in that list of free blocks; kNone when there is no room.
  Index add_segment(int64_t bytes, int32_t list);
  // Gives a segment that is one free block back to the driver; returns its bytes.
  int64_t release(Index segment) noexcept;
  // Held from the driver.
  int64_t segment_bytes() const { return segment_bytes_; }
  // Hands out the first or the last `bytes` of a longer free block, or all of it.
  Block take_cut(Index block, int64_t bytes, int64_t requested_bytes);
  Block take_tail(Index block, int64_t bytes, int64_t requested_bytes);
  Block take(Index block, int64_t requested_bytes);

  BlockStore store_;
  // Gives back every segment that is one free block.
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override { return store_.largest_free_bytes(); }

 private:
  int64_t segment_bytes_ = 0;
};

}  // namespace headroom
