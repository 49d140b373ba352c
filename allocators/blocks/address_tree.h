// Free blocks by address, for first fit. Knows no memory and no strategy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocators/blocks/free_list.h"

namespace headroom {

// A B+ tree by place, in which each entry of an inner node knows the size of the largest block below it. Wide
// nodes, so that a search among a million blocks reads few cache lines.
class AddressTree {
 public:
  using Index = BlockRecord::Index;
  static constexpr Index kNone = BlockRecord::kNone;

  // Makes room for that many blocks; call it before insert(). Throws std::bad_alloc and then changes nothing.
  void prepare(size_t blocks);
  // `blocks` is the owner's array.
  void insert(const BlockRecord* blocks, Index block) noexcept;
  // The block must be in the tree and unchanged since.
  void erase(const BlockRecord* blocks, Index block) noexcept;
  // The first block by place of at least `bytes` (> 0), or kNone.
  Index first_fit(int64_t bytes) const noexcept;
  // Returns the size of the largest block; 0 if there is none.
  int64_t largest_bytes() const noexcept { return root_ == nullptr ? 0 : largest_in(*root_); }
  // Returns the number of nodes that all calls have examined.
  int64_t visits() const { return visits_; }

 private:
  static constexpr int kMostEntries = 64;   // per node; a full node is split
  static constexpr int kLeastEntries = 16;  // per node, except for the root
  struct Node {
    union Below {
      Node* node;
      Index block;
    };
    int count;
    uint64_t places[kMostEntries];  // place of a block; below an inner entry, the smallest one
    int64_t bytes[kMostEntries];    // bytes of a block; below an inner entry, the largest one
    Below below[kMostEntries];
  };

  static int64_t largest_in(const Node& node) noexcept;
  static int entry_for(const Node& node, uint64_t place) noexcept;
  static void insert_entry(Node& node, int at, uint64_t place, int64_t bytes, Node::Below below) noexcept;
  static void erase_entries(Node& node, int begin, int end) noexcept;
  static void append_entries(Node& to, const Node& from, int begin, int end) noexcept;
  void split(Node& parent, int at) noexcept;
  void even_out(Node& parent, int at) noexcept;
  Node* take_node() noexcept;
  void release_node(Node* node) noexcept;

  Node* root_ = nullptr;
  int height_ = 0;  // levels above the leaves
  struct Piece {
    std::unique_ptr<Node[]> nodes;
    size_t count = 0;
  };
  std::vector<Piece> pieces_;  // memory of the nodes
  size_t nodes_ = 0;           // in all pieces
  size_t piece_ = 0;           // the first with a node that was never used
  size_t used_in_piece_ = 0;
  Node* spare_ = nullptr;  // used before: a list through below[0]
  mutable int64_t visits_ = 0;
};

}  // namespace headroom
