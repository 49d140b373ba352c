// PyTorch's native caching allocator: keeps segments of a few sizes and splits them into blocks, separately
// for small and large blocks and for each stream. Does not implement its expandable segments and
// graph-private pools.
#pragma once

#include <array>
#include <unordered_map>
#include <vector>

#include "allocators/strategies/caching_rules.h"
#include "allocators/strategies/segment_allocator.h"

namespace headroom {

class CachingAllocator final : public SegmentAllocator {
 public:
  // With `kernels_after` segments have the addresses of SegmentPlaces; else each new one lies below all
  // others.
  CachingAllocator(Device& device, std::string name, std::optional<Limit> limit, CachingRules rules,
                   std::optional<int64_t> kernels_after = {});

 private:
  // The pools of one stream: small blocks in the first list of the store, large ones in the second.
  class Lane final : public StreamLane {
   public:
    // `user` is the stream's number as user of a block.
    Lane(Stream stream, int32_t user, BlockStore& blocks, const CachingRules& rules);

    // A free block that serves the request, or kNone.
    Index find(int32_t pool, int64_t block_bytes);
    // Hands out the block for `bytes`, split if the rules require it.
    Block take_from(Index block, int64_t block_bytes, int64_t bytes);
    // Frees a block last used by `last_user` and returns its size; 0 if there is none.
    int64_t give_back(const void* pointer, int64_t bytes, int32_t last_user) noexcept;
    // Returns the number of searches of its pool since the block was freed.
    int64_t idle_searches(Index block) const;

    BlockStore& store;
    std::array<int64_t, 2> searches{};  // searches of each pool: the clock for the age of idle blocks

   private:
    Block take(int64_t bytes) override;
    void note_repeat(int64_t bytes) override;
    int64_t give_back(void* pointer, int64_t bytes) noexcept override {
      return give_back(pointer, bytes, user_);
    }

    const int32_t user_;
    const CachingRules& rules_;
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;

  Lane* lane_with(const void* pointer) noexcept;
  Lane& lane_of(Stream stream);
  Index grow(Lane& lane, int32_t pool, int64_t block_bytes);
  void collect_garbage();
  bool release_oversize(Lane& lane, int32_t pool, int64_t block_bytes) noexcept;
  bool collects_garbage() const { return rules_.gc_share > 0 && limit_bytes().has_value(); }

  const CachingRules rules_;
  StreamNumbers streams_;
  std::vector<Lane*> own_lanes_;  // by number of their stream
  std::unordered_map<const BlockStore*, Lane*> lanes_by_store_;
};

}  // namespace headroom
