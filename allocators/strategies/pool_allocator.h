// RMM's pool: segments double the pool or take half of what its limit leaves; exact best fit; free blocks
// belong to the stream that freed them.
#pragma once

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

  int32_t list_of(Stream stream);
  // Notes how large the largest free block of a list is now.
  void note_largest(int32_t list);
  Index find_elsewhere(int64_t bytes);
  Index merge_lists(int32_t list, int64_t bytes);
  Index grow(int32_t list, int64_t bytes);

  BlockStore& store_ = new_store();
  StreamNumbers streams_;  // the number is that of their list in the store
  FirstWith largest_;      // the bytes of the largest free block, by list
};

}  // namespace headroom
