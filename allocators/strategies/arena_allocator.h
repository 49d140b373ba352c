// RMM's arena: one segment that never grows; large blocks are cut from it directly, small ones from
// superblocks that each stream has to itself. First fit by address throughout. Knows no other segment.
#pragma once

#include <deque>

#include "allocators/strategies/segment_allocator.h"

namespace headroom {

class ArenaAllocator final : public SegmentAllocator {
 public:
  // The segment is as large as the limit, or as half of what the device has free. Throws OutOfMemory when the
  // device has no room for it.
  ArenaAllocator(Device& device, std::string name, std::optional<Limit> limit);

 private:
  // Superblocks of one stream: each is a block of the segment, and cut further in accounts of its own.
  struct Arena {
    Stream stream;
    BlockStore superblocks;
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

  BlockStore& store_ = new_store();
  const int64_t bytes_;
  std::deque<Arena> arenas_;
};

}  // namespace headroom
