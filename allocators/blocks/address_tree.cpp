#include "allocators/blocks/address_tree.h"

#include <algorithm>
#include <array>
#include <utility>

namespace headroom {
namespace {

constexpr int kMostLevels = 16;  // as nodes have at least 16 entries, more than any memory can hold

}  // namespace

void AddressTree::prepare(size_t blocks) {
  // Each level has at most a sixteenth of the nodes of the one below, and may have one that holds less.
  const size_t wanted = blocks / (kLeastEntries - 1) + kMostLevels;
  if (wanted <= nodes_) return;
  const size_t more = std::max(wanted - nodes_, nodes_);
  pieces_.reserve(pieces_.size() + 1);
  // Not initialized: nodes that are never used use no memory.
  pieces_.push_back({std::unique_ptr<Node[]>(new Node[more]), more});
  nodes_ += more;
}

void AddressTree::insert(const BlockRecord* blocks, Index block) noexcept {
  const uint64_t place = blocks[block].place;
  const int64_t bytes = blocks[block].bytes;
  if (root_ == nullptr) root_ = take_node();
  if (root_->count == kMostEntries) {
    Node* const above = take_node();
    insert_entry(*above, 0, root_->places[0], largest_in(*root_), {.node = root_});
    root_ = above;
    ++height_;
    split(*root_, 0);
  }
  Node* node = root_;
  for (int level = height_; level > 0; --level) {
    ++visits_;
    int at = entry_for(*node, place);
    if (node->below[at].node->count == kMostEntries) {
      split(*node, at);
      if (place >= node->places[at + 1]) ++at;
    }
    node->places[at] = std::min(node->places[at], place);
    node->bytes[at] = std::max(node->bytes[at], bytes);
    node = node->below[at].node;
  }
  ++visits_;
  const uint64_t* const behind = std::upper_bound(node->places, node->places + node->count, place);
  insert_entry(*node, static_cast<int>(behind - node->places), place, bytes, {.block = block});
}

void AddressTree::erase(const BlockRecord* blocks, Index block) noexcept {
  const uint64_t place = blocks[block].place;
  std::array<Node*, kMostLevels> above = {};
  std::array<int, kMostLevels> entries = {};
  Node* node = root_;
  for (int level = height_; level > 0; --level) {
    ++visits_;
    const auto at = static_cast<size_t>(level - 1);
    above[at] = node;
    entries[at] = entry_for(*node, place);
    node = node->below[entries[at]].node;
  }
  ++visits_;
  const int gone = entry_for(*node, place);
  const int64_t gone_bytes = node->bytes[gone];
  erase_entries(*node, gone, gone + 1);
  for (int level = 0; level < height_; ++level) {
    Node& parent = *above[static_cast<size_t>(level)];
    const int at = entries[static_cast<size_t>(level)];
    Node& child = *parent.below[at].node;
    if (child.count < kLeastEntries) {
      even_out(parent, at);
    } else if (parent.bytes[at] == gone_bytes) {  // otherwise a larger one is there
      parent.bytes[at] = largest_in(child);
    } else {
      return;
    }
  }
  if (height_ == 0 || root_->count > 1) return;
  release_node(std::exchange(root_, root_->below[0].node));
  --height_;
}

AddressTree::Index AddressTree::first_fit(int64_t bytes) const noexcept {
  const Node* node = root_;
  if (node == nullptr) return kNone;
  for (int level = height_;; --level) {
    ++visits_;
    const int64_t* const end = node->bytes + node->count;
    const int64_t* const found =
        std::find_if(node->bytes, end, [bytes](int64_t each) { return each >= bytes; });
    if (found == end) return kNone;  // only in the root
    const Node::Below below = node->below[found - node->bytes];
    if (level == 0) return below.block;
    node = below.node;
  }
}

int64_t AddressTree::largest_in(const Node& node) noexcept {
  int64_t largest = 0;
  for (int at = 0; at < node.count; ++at) largest = std::max(largest, node.bytes[at]);
  return largest;
}

// Returns the last entry whose place is not after this one, or the first entry.
int AddressTree::entry_for(const Node& node, uint64_t place) noexcept {
  const uint64_t* const behind = std::upper_bound(node.places + 1, node.places + node.count, place);
  return static_cast<int>(behind - node.places) - 1;
}

void AddressTree::insert_entry(Node& node, int at, uint64_t place, int64_t bytes,
                               Node::Below below) noexcept {
  std::move_backward(node.places + at, node.places + node.count, node.places + node.count + 1);
  std::move_backward(node.bytes + at, node.bytes + node.count, node.bytes + node.count + 1);
  std::move_backward(node.below + at, node.below + node.count, node.below + node.count + 1);
  node.places[at] = place;
  node.bytes[at] = bytes;
  node.below[at] = below;
  ++node.count;
}

void AddressTree::erase_entries(Node& node, int begin, int end) noexcept {
  std::move(node.places + end, node.places + node.count, node.places + begin);
  std::move(node.bytes + end, node.bytes + node.count, node.bytes + begin);
  std::move(node.below + end, node.below + node.count, node.below + begin);
  node.count -= end - begin;
}

void AddressTree::append_entries(Node& to, const Node& from, int begin, int end) noexcept {
  std::copy(from.places + begin, from.places + end, to.places + to.count);
  std::copy(from.bytes + begin, from.bytes + end, to.bytes + to.count);
  std::copy(from.below + begin, from.below + end, to.below + to.count);
  to.count += end - begin;
}

// Moves the upper half of a full node to a new node after it.
void AddressTree::split(Node& parent, int at) noexcept {
  Node& lower = *parent.below[at].node;
  Node* const upper = take_node();
  append_entries(*upper, lower, kMostEntries / 2, kMostEntries);
  lower.count = kMostEntries / 2;
  parent.bytes[at] = largest_in(lower);
  insert_entry(parent, at + 1, upper->places[0], largest_in(*upper), {.node = upper});
}

// Merges a node of few entries with a neighbor or, if the result would be too large, balances the two.
void AddressTree::even_out(Node& parent, int at) noexcept {
  if (at + 1 == parent.count) --at;
  Node& lower = *parent.below[at].node;
  Node& upper = *parent.below[at + 1].node;
  const int all = lower.count + upper.count;
  if (all <= kMostEntries) {
    append_entries(lower, upper, 0, upper.count);
    release_node(&upper);
    erase_entries(parent, at + 1, at + 2);
  } else {
    Node both = {};
    const int moved = lower.count - all / 2;  // to the upper one, if positive
    if (moved > 0) {
      append_entries(both, lower, lower.count - moved, lower.count);
      append_entries(both, upper, 0, upper.count);
      upper = both;
    } else {
      append_entries(lower, upper, 0, -moved);
      erase_entries(upper, 0, -moved);
    }
    lower.count = all / 2;
    parent.places[at + 1] = upper.places[0];
    parent.bytes[at + 1] = largest_in(upper);
  }
  parent.bytes[at] = largest_in(lower);
}

AddressTree::Node* AddressTree::take_node() noexcept {
  Node* node = spare_;
  if (node != nullptr) {
    spare_ = node->below[0].node;
  } else {
    if (used_in_piece_ == pieces_[piece_].count) {
      ++piece_;
      used_in_piece_ = 0;
    }
    node = &pieces_[piece_].nodes[used_in_piece_++];
  }
  node->count = 0;
  return node;
}

void AddressTree::release_node(Node* node) noexcept {
  node->below[0].node = std::exchange(spare_, node);
}

}  // namespace headroom
