// The memory of one stream and one class of block sizes in PyTorch's expandable segments: ranges of addresses
// larger than the device's memory, with pages mapped from the low end on. Knows no rule of block sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "allocators/blocks/block_store.h"
#include "device/virtual_memory.h"

namespace headroom {

class ExpandablePool {
 public:
  using Index = BlockStore::Index;
  // Lists of the store: free blocks with pages under them, and addresses without.
  static constexpr int32_t kMapped = 0, kUnmapped = 1;

  // Ranges have `range_bytes`, pages `page_bytes`. `count` gets the bytes and the address of each page that
  // was created (positive), mapped (0), or released (negative), `note_range` the base of each new range.
  // `memory` must outlive this.
  ExpandablePool(VirtualMemory& memory, int64_t range_bytes, int64_t page_bytes,
                 std::function<void(int64_t bytes, void* address)> count,
                 std::function<void(const void* base)> note_range);
  ~ExpandablePool() { clear(); }
  ExpandablePool(const ExpandablePool&) = delete;
  ExpandablePool& operator=(const ExpandablePool&) = delete;

  // Returns the mapped free block that serves `bytes` best, or kNone. A block that could grow counts with the
  // addresses after it, so that others are used first.
  Index find(int64_t bytes);
  // Maps pages, at most `max_bytes`, at the lowest addresses where `bytes` fit together with free blocks
  // there. Returns the free block; kNone if there is no room, in which case pages that were mapped by then
  // stay.
  Index grow(int64_t bytes, int64_t max_bytes);
  // Unmaps and releases all pages that no block touches; returns their bytes. The caller has waited for the
  // work that used them.
  int64_t release_idle() noexcept;
  // Releases everything; the store must not be used afterwards. The caller has waited for all work.
  void clear() noexcept;

  // Calls visit(range's first block) for each range.
  template <class Visit>
  void for_each_range(const Visit& visit) const {
    store.for_each_segment(visit);
  }

  BlockStore store;

 private:
  struct Range {
    std::byte* base = nullptr;
    std::vector<PhysicalBlock> pages;  // by place, up to the highest used; 0 bytes: nothing is mapped there
  };

  bool can_grow(Index block) const;
  int64_t reach_of(Index block) const;
  Index lowest_place(int64_t bytes) const;
  Index add_range();
  Index map_head(Index block, int64_t bytes, int64_t& left_bytes);
  bool map_page(Range& range, size_t place);
  void unmap_page(Range& range, size_t place) noexcept;
  Range& range_of(const std::byte* address);

  VirtualMemory& memory_;
  const int64_t page_bytes_, range_bytes_;
  const std::function<void(int64_t, void*)> count_;
  const std::function<void(const void*)> note_range_;
  std::vector<Range> ranges_;
};

}  // namespace headroom
