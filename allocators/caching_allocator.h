// PyTorch's native caching allocator: segments of a few sizes are kept and cut into blocks, small and large
// ones apart, for each stream. Knows none of its virtual-memory segments and no graph-private pools.
#pragma once

#include <vector>

#include "allocators/caching_rules.h"
#include "allocators/segment_allocator.h"

namespace headroom {

class CachingAllocator final : public SegmentAllocator {
 public:
  CachingAllocator(Device& device, std::string name, std::optional<Limit> limit, CachingRules rules);

 private:
  // The small or the large blocks of one stream.
  struct Pool {
    Stream stream;
    int64_t searches = 0;  // the clock by which idle blocks grow old
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;

  int32_t pool_of(Stream stream, bool small);
  Index find(int32_t pool, int64_t block_bytes);
  Index grow(int32_t pool, int64_t block_bytes);
  void collect_garbage();
  bool release_oversize(int32_t pool, int64_t block_bytes) noexcept;
  bool collects_garbage() const { return rules_.gc_share > 0 && limit_bytes().has_value(); }
  int64_t idle_searches(Index block) const;
  Pool& pool(int32_t number) { return pools_[static_cast<size_t>(number)]; }

  const CachingRules rules_;
  std::vector<Pool> pools_;  // by the number of their list in the store
};

}  // namespace headroom
