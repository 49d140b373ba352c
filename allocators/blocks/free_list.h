// Free blocks by size, then by place, for best fit. Knows no memory and no strategy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocators/blocks/size_bins.h"

namespace headroom {

// A part of a segment, free or handed out. The blocks of a segment form a chain in address order. Each takes
// one cache line; they refer to each other by index in the owner's array.
struct alignas(64) BlockRecord {
  using Index = int32_t;
  static constexpr Index kNone = -1;
  // The user of a block, or its last one: a number that the strategy assigns, one of these, or a set of
  // UserSets.
  static constexpr int32_t kNobody = -1;
  static constexpr int32_t kSeveral = -2;

  std::byte* pointer = nullptr;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;  // 0: free
  uint64_t place = 0;           // by age of the segment, then by address, so that runs are deterministic
  int64_t stamp = 0;            // the strategy's own
  int32_t list = 0;             // its list while it is free; parts of a block inherit it
  int32_t user = kNobody;       // inherited by parts of a block
  Index previous = kNone;
  Index next = kNone;
  // For a free block: its subtrees. For another block, in side[0]: the next in its hash chain.
  Index side[2] = {kNone, kNone};
};
static_assert(sizeof(BlockRecord) == 64);

// One tree per size class; nearly all hold one block or none. Trees are treaps (Seidel and Aragon,
// "Randomized search trees", 1996) with priorities from the place. Never allocates. `blocks` is the owner's
// array.
class FreeList {
 public:
  using Index = BlockRecord::Index;
  static constexpr Index kNone = BlockRecord::kNone;

  FreeList() { roots_.fill(kNone); }

  // Sizes are up to 2^60; places are unique.
  void insert(BlockRecord* blocks, Index block) noexcept {
    ++size_;
    const int bin = SizeBins::of(blocks[block].bytes);
    Index& root = roots_[static_cast<size_t>(bin)];
    if (root != kNone) return insert_below(blocks, &root, block);
    root = block;
    blocks[block].side[0] = blocks[block].side[1] = kNone;
    bins_.set(bin);
  }

  // The block must be in the list and unchanged since.
  void erase(BlockRecord* blocks, Index block) noexcept {
    const int bin = SizeBins::of(blocks[block].bytes);
    Index* link = &roots_[static_cast<size_t>(bin)];
    if (*link != block) link = link_to(blocks, link, block);
    erase(blocks, Place{link, bin});
  }

  // The position of a block, valid until the next change.
  struct Place {
    Index* link = nullptr;  // null: none
    int bin = 0;
  };
  void erase(BlockRecord* blocks, Place place) noexcept {
    --size_;
    const BlockRecord& gone = blocks[*place.link];
    if (gone.side[0] == kNone && gone.side[1] == kNone) {
      *place.link = kNone;
    } else {
      join_sides(blocks, place.link);
    }
    if (roots_[static_cast<size_t>(place.bin)] == kNone) bins_.clear(place.bin);
  }

  // Returns the smallest block of at least `bytes`, the first of equal ones by place; null if there is none.
  Place best_fit(BlockRecord* blocks, int64_t bytes) noexcept {
    int bin = SizeBins::of(bytes);
    Index* link = &roots_[static_cast<size_t>(bin)];
    Index* found = nullptr;
    while (*link != kNone) {
      BlockRecord& each = blocks[*link];
      const bool fits = each.bytes >= bytes;
      found = fits ? link : found;
      link = &each.side[!fits];
    }
    if (found != nullptr) return {found, bin};
    bin = bins_.first_from(bin + 1);
    if (bin < 0) return {};
    link = &roots_[static_cast<size_t>(bin)];
    while (blocks[*link].side[0] != kNone) link = &blocks[*link].side[0];
    return {link, bin};
  }

  int64_t size() const { return size_; }

  // The block after one of the list, in order of size and place, or kNone.
  Index after(const BlockRecord* blocks, Index block) const noexcept;

  // The last block in order, or kNone.
  Index largest(const BlockRecord* blocks) const noexcept {
    const int bin = bins_.last();
    if (bin < 0) return kNone;
    Index last = roots_[static_cast<size_t>(bin)];
    while (blocks[last].side[1] != kNone) last = blocks[last].side[1];
    return last;
  }

  // Calls visit(block) for each block in order; it must not change the list.
  template <class Visit>
  void for_each(const BlockRecord* blocks, const Visit& visit) const {
    for (int bin = bins_.first_from(0); bin >= 0; bin = bins_.first_from(bin + 1)) {
      visit_tree(blocks, roots_[static_cast<size_t>(bin)], visit);
    }
  }

 private:
  // For trees of several blocks. `link` is the start of the search, or the link to the removed block.
  static void insert_below(BlockRecord* blocks, Index* link, Index block) noexcept;
  static Index* link_to(BlockRecord* blocks, Index* link, Index block) noexcept;
  static void join_sides(BlockRecord* blocks, Index* link) noexcept;

  template <class Visit>
  static void visit_tree(const BlockRecord* blocks, Index root, const Visit& visit) {
    for (; root != kNone; root = blocks[root].side[1]) {
      visit_tree(blocks, blocks[root].side[0], visit);
      visit(root);
    }
  }

  std::array<Index, SizeBins::kCount> roots_;  // by class
  SizeBins bins_;
  int64_t size_ = 0;
};

}  // namespace headroom
