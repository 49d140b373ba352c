// The common part of strategies that cut segments from the driver into blocks. Knows no rule of how large a
// segment is or which block serves a request.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "allocators/allocator.h"
#include "allocators/blocks/block_store.h"
#include "allocators/strategies/segment_places.h"
#include "allocators/strategies/stream_numbers.h"

namespace headroom {

class SegmentAllocator : public Allocator {
 public:
  ~SegmentAllocator() override;

 protected:
  using Index = BlockStore::Index;
  using Allocator::Allocator;

  // A new store of segments; lives as long as this.
  BlockStore& new_store(BlockStore::Order order = BlockStore::Order::kBySize);
  // From now on segments have the addresses that a driver would give them.
  void set_places(int64_t kernels_after) { places_.emplace(kernels_after); }
  // A new segment of `bytes` in that list of a store's free blocks, after so many allocations; kNone when
  // there is no room.
  Index add_segment(BlockStore& store, int64_t bytes, int32_t list, int64_t allocations = 0);
  // Returns the store of the segment with that address; null if there is none.
  BlockStore* store_with(const void* pointer) const noexcept;
  // Releases a segment that is one free block; returns its bytes.
  int64_t release(BlockStore& store, Index segment) noexcept;
  // Bytes held from the driver.
  int64_t segment_bytes() const { return segment_bytes_; }
  // Releases every segment that is one free block.
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;
  // The blocks of a store from this one on, and a single one.
  std::vector<SnapshotBlock> blocks_from(const BlockStore& store, Index block) const;
  SnapshotBlock snapshot_of(const BlockStore& store, Index block) const;

  // The number of a stream as user of a block, and back.
  int32_t user_of(Stream stream) { return streams_.number_of(stream); }
  Stream stream_of_user(int32_t user) const { return streams_[user]; }
  // Makes `stream` wait for a user.
  void follow_user(const UserSets& sets, int32_t user, Stream stream);
  // Makes `stream` wait for the last users of a free block. Call it before taking the block.
  void follow_users(BlockStore& store, Index block, Stream stream);

  // The result of do_allocate for a block taken for that user.
  static Block handed_out(BlockStore& store, Index block, int32_t user) {
    store.at(block).user = user;
    return {store.at(block).pointer, store.at(block).bytes};
  }

 private:
  std::vector<std::unique_ptr<BlockStore>> stores_;
  int64_t segment_bytes_ = 0;
  // By address, the highest first, so that lower_bound finds the segment with an address.
  std::map<const void*, BlockStore*, std::greater<>> segments_;
  std::optional<SegmentPlaces> places_;
  StreamNumbers streams_;  // that took or freed blocks
};

}  // namespace headroom
