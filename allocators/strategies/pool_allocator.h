// RMM's pool: segments double the pool or use half of the rest of its limit; exact best fit; free blocks
// belong to the stream that freed them.
#pragma once

#include <vector>

#include "allocators/blocks/first_with.h"
#include "allocators/strategies/segment_allocator.h"
#include "allocators/strategies/strategy_options.h"

namespace headroom {

inline constexpr StrategyOption kPoolOptions[] = {
    {"initial", "SIZE", "none", "size of the pool at the start"},
};

class PoolAllocator final : public SegmentAllocator {
 public:
  // Throws OutOfMemory when the device or the limit has no room for the initial bytes (>= 0).
  PoolAllocator(Device& device, std::string name, std::optional<Limit> limit, int64_t initial_bytes);

 private:
  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;

  // The number of a stream, which has a list from then on, and its list.
  int32_t owner_of(Stream stream);
  int32_t& list_of(int32_t owner) { return lists_[static_cast<size_t>(owner)]; }
  // Notes how large the largest free block of an owner is now.
  void note_largest(int32_t owner);
  Index find_elsewhere(int64_t bytes);
  Index merge_lists(int32_t owner, int64_t bytes);
  void take_all(int32_t owner, int32_t other);
  Index grow(int32_t owner, int64_t bytes);

  BlockStore& store_ = new_store();
  StreamNumbers streams_;
  std::vector<int32_t> lists_;   // lists of the store, by owner
  std::vector<int32_t> owners_;  // by list
  FirstWith largest_;            // the bytes of the largest free block, by owner
};

}  // namespace headroom
