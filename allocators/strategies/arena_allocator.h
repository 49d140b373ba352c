// RMM's arena: one segment that never grows. Large blocks are cut from it, small ones from superblocks of one
// stream each. First fit by address throughout.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "allocators/strategies/segment_allocator.h"

namespace headroom {

class ArenaAllocator final : public SegmentAllocator {
 public:
  // The segment has the limit's size, or half of the device's free memory. Throws OutOfMemory without room
  // for it.
  ArenaAllocator(Device& device, std::string name, std::optional<Limit> limit);

  // Returns the number of nodes in the trees of free blocks that all calls have examined.
  int64_t visits() const;

 private:
  // The superblocks of one stream: blocks of the segment, split further in a store of their own.
  struct Arena {
    Stream stream;
    BlockStore superblocks{BlockStore::Order::kByAddress};
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  Block allocate_large(int64_t bytes, Stream stream);
  Block allocate_small(Arena& arena, int64_t bytes);
  Index take_first_fit(BlockStore& store, int64_t bytes, Stream stream);
  bool defragment() noexcept;
  Arena& arena_of(Stream stream);

  BlockStore& store_ = new_store(BlockStore::Order::kByAddress);
  const int64_t bytes_;
  StreamNumbers streams_;
  std::deque<Arena> arenas_;                                   // by number of their stream
  std::map<const void*, Arena*, std::greater<>> superblocks_;  // by address, the highest first
};

}  // namespace headroom
