#include "allocators/blocks/free_list.h"

namespace headroom {
namespace {

// Avoids branches, which could not be predicted.
bool is_before(const BlockRecord& one, const BlockRecord& other) {
  return (one.bytes < other.bytes) | ((one.bytes == other.bytes) & (one.place < other.place));
}

// Fibonacci hashing (Knuth, vol. 3, 6.4) spreads neighbors.
uint64_t priority(const BlockRecord& block) {
  return block.place * 0x9E3779B97F4A7C15u;
}

}  // namespace

// Descends to where its priority belongs and splits the subtree there.
void FreeList::insert_below(BlockRecord* blocks, Index* link, Index block) noexcept {
  BlockRecord& added = blocks[block];
  const uint64_t added_priority = priority(added);
  Index rest = *link;
  while (rest != kNone && priority(blocks[rest]) > added_priority) {
    link = &blocks[rest].side[!is_before(added, blocks[rest])];
    rest = *link;
  }
  *link = block;
  Index* ends[2] = {&added.side[0], &added.side[1]};
  while (rest != kNone) {
    BlockRecord& each = blocks[rest];
    const bool behind = is_before(added, each);
    *ends[behind] = rest;
    ends[behind] = &each.side[!behind];
    rest = each.side[!behind];
  }
  *ends[0] = *ends[1] = kNone;
}

FreeList::Index* FreeList::link_to(BlockRecord* blocks, Index* link, Index block) noexcept {
  while (*link != block) {
    BlockRecord& each = blocks[*link];
    link = &each.side[!is_before(blocks[block], each)];
  }
  return link;
}

// Replaces a block by its merged subtrees.
void FreeList::join_sides(BlockRecord* blocks, Index* link) noexcept {
  const BlockRecord& gone = blocks[*link];
  Index parts[2] = {gone.side[0], gone.side[1]};
  while (parts[0] != kNone && parts[1] != kNone) {
    const bool second = priority(blocks[parts[0]]) <= priority(blocks[parts[1]]);
    *link = parts[second];
    link = &blocks[parts[second]].side[!second];
    parts[second] = *link;
  }
  *link = parts[parts[0] == kNone];
}

FreeList::Index FreeList::after(const BlockRecord* blocks, Index block) const noexcept {
  int bin = SizeBins::of(blocks[block].bytes);
  Index found = kNone;
  for (Index each = roots_[static_cast<size_t>(bin)]; each != kNone;) {
    const bool behind = is_before(blocks[block], blocks[each]);
    if (behind) found = each;
    each = blocks[each].side[!behind];
  }
  if (found != kNone) return found;
  bin = bins_.first_from(bin + 1);
  if (bin < 0) return kNone;
  found = roots_[static_cast<size_t>(bin)];
  while (blocks[found].side[0] != kNone) found = blocks[found].side[0];
  return found;
}

}  // namespace headroom
