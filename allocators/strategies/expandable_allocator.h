// PyTorch's caching allocator with expandable segments: instead of many segments, each stream has one range
// of addresses for small blocks and one for large blocks, which grow page by page.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "allocators/strategies/caching_rules.h"
#include "allocators/strategies/expandable_pool.h"
#include "allocators/strategies/segment_allocator.h"

namespace headroom {

// Has no segments from the driver: of its base it uses the accounts of streams.
class ExpandableAllocator final : public SegmentAllocator {
 public:
  // Throws InvalidArgument when the device has no virtual memory.
  ExpandableAllocator(Device& device, std::string name, std::optional<Limit> limit, CachingRules rules);
  ~ExpandableAllocator() override;

 private:
  class Lane final : public StreamLane {
   public:
    Lane(Stream stream, int32_t user, ExpandableAllocator& owner);

    ExpandablePool& pool_for(int64_t block_bytes) { return is_small_block(block_bytes) ? small : large; }
    // A mapped free block that serves the request, or kNone.
    Index find(int64_t block_bytes);
    // Hands out the block for `bytes`, split if the rules require it.
    Block take_from(Index block, int64_t block_bytes, int64_t bytes);
    int64_t give_back_from(const void* pointer, int64_t bytes, int32_t last_user) noexcept;

    ExpandablePool small, large;

   private:
    Block take(int64_t bytes) override;
    int64_t give_back(void* pointer, int64_t bytes) noexcept override {
      return give_back_from(pointer, bytes, user_);
    }

    const int32_t user_;
    const CachingRules& rules_;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override;
  void do_snapshot(std::vector<SnapshotSegment>& segments) const override;

  Lane* lane_with(const void* pointer) noexcept;
  Lane& lane_of(Stream stream);
  void wait_for_streams();
  void add_segments(const ExpandablePool& pool, std::vector<SnapshotSegment>& segments) const;

  Device& device_;
  VirtualMemory& memory_;
  const CachingRules rules_;
  std::map<const void*, Lane*, std::greater<>> ranges_;  // by address, the highest first
  StreamNumbers streams_;
  std::vector<Lane*> own_lanes_;  // by number of their stream
};

}  // namespace headroom
