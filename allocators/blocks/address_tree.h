// Free blocks by address, for first fit. Knows no memory and no strategy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocators/blocks/free_list.h"

namespace headroom {

// A treap by place, with priorities from the place, in which each block knows the size of the largest block
// in its subtree: its `stamp`. Never allocates. `blocks` is the owner's array.
class AddressTree {
 public:
  using Index = BlockRecord::Index;
  static constexpr Index kNone = BlockRecord::kNone;

  void insert(BlockRecord* blocks, Index block) noexcept;
  // The block must be in the tree and unchanged since.
  void erase(BlockRecord* blocks, Index block) noexcept;
  // The first block by place of at least `bytes` (> 0), or kNone.
  Index first_fit(const BlockRecord* blocks, int64_t bytes) const noexcept;
  // One of the largest blocks, or kNone.
  Index largest(const BlockRecord* blocks) const noexcept;
  // How many blocks all calls have visited.
  int64_t visits() const { return visits_; }

 private:
  Index root_ = kNone;
  mutable int64_t visits_ = 0;
};

}  // namespace headroom
