// Free blocks in order of size, then of place: the search behind every best fit. Knows no memory and no rule
// of when a block may be used.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocators/blocks/size_bins.h"

namespace headroom {

// A part of a segment, free or handed out. The blocks of a segment form a chain in address order. One line
// of cache each; they name each other by their number in the owner's array.
struct alignas(64) BlockRecord {
  using Index = int32_t;
  static constexpr Index kNone = -1;
  // Who uses a block or did last, by a number of the strategy's, or:
  static constexpr int32_t kNobody = -1;
  static constexpr int32_t kSeveral = -2;

  std::byte* pointer = nullptr;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;  // 0: free
  uint64_t place = 0;           // by age of the segment, then by address: the same in every run
  int64_t stamp = 0;            // the strategy's own
  int32_t list = 0;             // where it stands while it is free; the parts of a block inherit it
  int32_t user = kNobody;       // who has it, or had it last; free parts inherit it, too
  Index previous = kNone;
  Index next = kNone;
  // Of a free block the trees of those before it and behind it in order; the first of another is the next one
  // in its chain of addresses.
  Index side[2] = {kNone, kNone};
};
static_assert(sizeof(BlockRecord) == 64);

// A tree to each class of sizes, of which nearly all have one block or none; large ones are kept shallow by
// priorities that are drawn from the place (treaps: Seidel and Aragon, "Randomized search trees", 1996).
// Nothing is ever taken from the heap. `blocks` is the owner's array.
class FreeList {
 public:
  using Index = BlockRecord::Index;
  static constexpr Index kNone = BlockRecord::kNone;

  FreeList() { roots_.fill(kNone); }

  // Sizes up to 2^60, places that no two blocks have.
  void insert(BlockRecord* blocks, Index block) noexcept {
    const int bin = SizeBins::of(blocks[block].bytes);
    Index& root = roots_[static_cast<size_t>(bin)];
    if (root != kNone) return insert_below(blocks, &root, block);
    root = block;
    blocks[block].side[0] = blocks[block].side[1] = kNone;
    bins_.set(bin);
  }

  // It must be in the list, and be as it was then.
  void erase(BlockRecord* blocks, Index block) noexcept {
    const int bin = SizeBins::of(blocks[block].bytes);
    Index* link = &roots_[static_cast<size_t>(bin)];
    if (*link != block) link = link_to(blocks, link, block);
    erase(blocks, Place{link, bin});
  }

  // Where a block stands: valid until the next change.
  struct Place {
    Index* link = nullptr;  // null: nowhere
    int bin = 0;
  };
  void erase(BlockRecord* blocks, Place place) noexcept {
    const BlockRecord& gone = blocks[*place.link];
    if (gone.side[0] == kNone && gone.side[1] == kNone) {
      *place.link = kNone;
    } else {
      join_sides(blocks, place.link);
    }
    if (roots_[static_cast<size_t>(place.bin)] == kNone) bins_.clear(place.bin);
  }

  // The smallest block of at least `bytes`, the first place of equal ones; nowhere when there is none.
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

  // The block of at least `bytes` with the first place of all; kNone when there is none.
  Index first_fit(const BlockRecord* blocks, int64_t bytes) const {
    Index first = kNone;
    for (int bin = bins_.first_from(SizeBins::of(bytes)); bin >= 0; bin = bins_.first_from(bin + 1)) {
      visit_tree(blocks, roots_[static_cast<size_t>(bin)], [&](Index block) {
        if (blocks[block].bytes < bytes) return;
        if (first == kNone || blocks[block].place < blocks[first].place) first = block;
      });
    }
    return first;
  }

  // The last block in order; kNone when there is none.
  Index largest(const BlockRecord* blocks) const noexcept {
    const int bin = bins_.last();
    if (bin < 0) return kNone;
    Index last = roots_[static_cast<size_t>(bin)];
    while (blocks[last].side[1] != kNone) last = blocks[last].side[1];
    return last;
  }

  // Calls visit(block) for each in order; it must not change the list.
  template <class Visit>
  void for_each(const BlockRecord* blocks, const Visit& visit) const {
    for (int bin = bins_.first_from(0); bin >= 0; bin = bins_.first_from(bin + 1)) {
      visit_tree(blocks, roots_[static_cast<size_t>(bin)], visit);
    }
  }

 private:
  // What more than one block in a tree takes. `link` is where the search begins, or what is gone stands.
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
};

}  // namespace headroom
