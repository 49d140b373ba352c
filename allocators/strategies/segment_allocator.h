// What strategies share that hold segments from the driver and cut them into blocks. Knows no rule of how
// large a segment is, nor which block serves a request.
#pragma once

#include <memory>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/blocks/block_store.h"

namespace headroom {

class SegmentAllocator : public Allocator {
 public:
  ~SegmentAllocator() override;

 protected:
  using Index = BlockStore::Index;
  using Allocator::Allocator;

  // Segments that are kept apart from those of other stores; it lives as long as this.
  BlockStore& new_store();
  // A new segment of `bytes` in that list of a store's free blocks; kNone when there is no room.
  Index add_segment(BlockStore& store, int64_t bytes, int32_t list);
  // Gives a segment that is one free block back to the driver; returns its bytes.
  int64_t release(BlockStore& store, Index segment) noexcept;
  // Held from the driver.
  int64_t segment_bytes() const { return segment_bytes_; }
  // Gives back every segment that is one free block.
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;
  // The blocks of a store from this one on.
  std::vector<SnapshotBlock> blocks_from(const BlockStore& store, Index block) const;

  // The number of a stream as the last user of a block, and back.
  int32_t user_of(Stream stream);
  Stream stream_of_user(int32_t user) const { return streams_[static_cast<size_t>(user)]; }
  // Makes `stream` start after whoever used a block last: to be called before it is handed out there.
  void follow_user(int32_t user, Stream stream);

  // What allocate returns for a block of a store that it took for that user.
  static Block handed_out(BlockStore& store, Index block, int32_t user) {
    store.at(block).user = user;
    return {store.at(block).pointer, store.at(block).bytes};
  }

 private:
  std::vector<std::unique_ptr<BlockStore>> stores_;
  int64_t segment_bytes_ = 0;
  std::vector<Stream> streams_;  // that blocks came back on
};

}  // namespace headroom
