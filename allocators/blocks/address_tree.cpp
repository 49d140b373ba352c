#include "allocators/blocks/address_tree.h"

#include <algorithm>

namespace headroom {
namespace {

using Index = AddressTree::Index;
constexpr Index kNoBlock = AddressTree::kNone;

// Fibonacci hashing, as in FreeList.
uint64_t priority_by_place(const BlockRecord& block) {
  return block.place * 0x9E3779B97F4A7C15u;
}

int64_t largest_below(const BlockRecord* blocks, Index root) {
  return root == kNoBlock ? 0 : blocks[root].stamp;
}

void note_largest(BlockRecord* blocks, Index root) {
  BlockRecord& block = blocks[root];
  block.stamp =
      std::max({block.bytes, largest_below(blocks, block.side[0]), largest_below(blocks, block.side[1])});
}

// Divides a subtree at a place. As deep as the tree: some dozens.
void split_at(BlockRecord* blocks, Index root, uint64_t place, Index* below, Index* above, int64_t& visits) {
  if (root == kNoBlock) {
    *below = *above = kNoBlock;
    return;
  }
  ++visits;
  const Index next = root;
  if (blocks[root].place < place) {
    split_at(blocks, blocks[root].side[1], place, &blocks[root].side[1], above, visits);
    *below = next;
  } else {
    split_at(blocks, blocks[root].side[0], place, below, &blocks[root].side[0], visits);
    *above = next;
  }
  note_largest(blocks, next);
}

Index join(BlockRecord* blocks, Index below, Index above, int64_t& visits) {
  if (below == kNoBlock) return above;
  if (above == kNoBlock) return below;
  ++visits;
  const bool below_is_root = priority_by_place(blocks[below]) > priority_by_place(blocks[above]);
  const Index root = below_is_root ? below : above;
  // Both subtrees are whole below it: no look at the other side, which is seldom in a cache.
  blocks[root].stamp = std::max(blocks[below].stamp, blocks[above].stamp);
  if (below_is_root) {
    blocks[root].side[1] = join(blocks, blocks[root].side[1], above, visits);
  } else {
    blocks[root].side[0] = join(blocks, below, blocks[root].side[0], visits);
  }
  return root;
}

Index without(BlockRecord* blocks, Index root, Index gone, int64_t& visits) {
  ++visits;
  if (root == gone) return join(blocks, blocks[root].side[0], blocks[root].side[1], visits);
  Index& side = blocks[root].side[blocks[root].place < blocks[gone].place];
  side = without(blocks, side, gone, visits);
  // Otherwise a larger one is there.
  if (blocks[root].stamp == blocks[gone].bytes) note_largest(blocks, root);
  return root;
}

}  // namespace

void AddressTree::insert(BlockRecord* blocks, Index block) noexcept {
  BlockRecord& added = blocks[block];
  const uint64_t priority = priority_by_place(added);
  Index* link = &root_;
  while (*link != kNoBlock && priority_by_place(blocks[*link]) > priority) {
    ++visits_;
    BlockRecord& each = blocks[*link];
    each.stamp = std::max(each.stamp, added.bytes);
    link = &each.side[each.place < added.place];
  }
  const Index rest = *link;
  *link = block;
  split_at(blocks, rest, added.place, &added.side[0], &added.side[1], visits_);
  note_largest(blocks, block);
}

void AddressTree::erase(BlockRecord* blocks, Index block) noexcept {
  root_ = without(blocks, root_, block, visits_);
}

AddressTree::Index AddressTree::first_fit(const BlockRecord* blocks, int64_t bytes) const noexcept {
  if (root_ == kNone || blocks[root_].stamp < bytes) return kNone;
  for (Index each = root_;;) {
    ++visits_;
    const BlockRecord& block = blocks[each];
    if (largest_below(blocks, block.side[0]) >= bytes) {
      each = block.side[0];
    } else if (block.bytes >= bytes) {
      return each;
    } else {
      each = block.side[1];
    }
  }
}

AddressTree::Index AddressTree::largest(const BlockRecord* blocks) const noexcept {
  return root_ == kNone ? kNone : first_fit(blocks, blocks[root_].stamp);
}

}  // namespace headroom
