// PyTorch's native caching allocator: segments of a few sizes are kept and cut into blocks, small and large
// ones apart, for each stream. Knows none of its virtual-memory segments and no graph-private pools.
#pragma once

#include <vector>

#include "allocators/allocator.h"
#include "allocators/block_store.h"
#include "allocators/caching_rules.h"

namespace headroom {

class CachingAllocator final : public Allocator {
 public:
  CachingAllocator(Device& device, std::string name, std::optional<Limit> limit, CachingRules rules);
  ~CachingAllocator() override;

 private:
  using Index = BlockStore::Index;

  // The small or the large blocks of one stream.
  struct Pool {
    Stream stream;
    int64_t searches = 0;  // the clock by which idle blocks grow old
  };

  Block do_allocate(int64_t bytes, Stream stream) override;
  int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept override;
  int64_t do_trim() noexcept override;
  int64_t largest_free_block() const override { return store_.largest_free_bytes(); }

  int32_t pool_of(Stream stream, bool small);
  Index find(int32_t pool, int64_t block_bytes);
  Index add_segment(int32_t pool, int64_t block_bytes);
  void collect_garbage();
  bool release_oversize(int32_t pool, int64_t block_bytes) noexcept;
  int64_t release(Index block) noexcept;
  bool collects_garbage() const { return rules_.gc_share > 0 && limit_bytes().has_value(); }
  int64_t idle_searches(Index block) const;
  Pool& pool(int32_t number) { return pools_[static_cast<size_t>(number)]; }

  const CachingRules rules_;
  BlockStore store_;
  std::vector<Pool> pools_;  // by the number of their list in the store
  int64_t reserved_bytes_ = 0;
};

}  // namespace headroom
