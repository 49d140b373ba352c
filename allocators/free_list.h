// Free blocks in order of size, then of place: the search behind every best fit. Knows no memory and no rule
// of when a block may be used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace headroom {

// A sorted array in pieces of at most 64 entries, so that a change moves little however many blocks are free.
// Half the price of a tree of nodes at the sizes that real runs have (tens to thousands of free blocks).
class FreeList {
 public:
  struct Entry {
    int64_t bytes;
    uint64_t place;  // unique; lower ones are preferred among equal sizes
    int32_t block;   // what the owner calls it
  };

  void insert(const Entry& entry);
  // `entry` must be in the list.
  void erase(const Entry& entry) noexcept;

  // The smallest entry of at least `bytes`, the first place of equal ones; null when there is none. Valid
  // until the next change.
  const Entry* best_fit(int64_t bytes) const;
  // The last entry in order; null when empty.
  const Entry* largest() const { return leaves_.empty() ? nullptr : &leaves_.back()->last(); }
  bool empty() const { return leaves_.empty(); }

  // Calls visit(entry) for each in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& leaf : leaves_) {
      for (size_t i = 0; i < leaf->count; ++i) visit(leaf->entries[i]);
    }
  }

 private:
  static constexpr size_t kLeafEntries = 64;
  struct Leaf {
    size_t count = 0;
    std::array<Entry, kLeafEntries> entries;
    const Entry& last() const { return entries[count - 1]; }
  };
  struct Position {
    size_t leaf;
    size_t entry;
  };

  Position lower_bound(int64_t bytes, uint64_t place) const;
  std::unique_ptr<Leaf> new_leaf();

  std::vector<std::unique_ptr<Leaf>> leaves_;  // in order, none empty
  std::vector<std::unique_ptr<Leaf>> spare_;   // kept, so that a steady state takes nothing from the heap
};

}  // namespace headroom
