// Free blocks in order of size, then of place: the search behind every best fit. Knows no memory and no rule
// of when a block may be used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace headroom {

// Bins by size, eight to a power of two, each a sorted array in pieces: a search looks at the few entries of
// one bin, and a change moves little even where thousands are of one size.
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
  // The entry of at least `bytes` with the first place of all; null when there is none.
  const Entry* first_fit(int64_t bytes) const;
  // The last entry in order; null when empty.
  const Entry* largest() const;
  bool empty() const { return largest() == nullptr; }

  // Calls visit(entry) for each in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t bin = next_used(0); bin < kBins; bin = next_used(bin + 1)) {
      for (const auto& leaf : bins_[bin]) {
        for (size_t i = 0; i < leaf->count; ++i) visit(leaf->entries[i]);
      }
    }
  }

 private:
  static constexpr size_t kLeafEntries = 32;
  static constexpr size_t kBins = 320;  // up to 1 PiB; larger sizes share the last one
  struct Leaf {
    size_t count = 0;
    std::array<Entry, kLeafEntries> entries;
    const Entry& last() const { return entries[count - 1]; }
  };
  using Bin = std::vector<std::unique_ptr<Leaf>>;  // in order; only a bin's single leaf may be empty
  struct Position {
    size_t leaf;
    size_t entry;
  };

  static size_t bin_of(int64_t bytes);
  static size_t first_of_size(const Leaf& leaf, int64_t bytes);
  static void insert_at(Leaf& leaf, size_t at, const Entry& entry);
  void insert_in_leaves(Bin& bin, const Entry& entry);
  static Position lower_bound(const Bin& bin, int64_t bytes, uint64_t place);
  // The first bin from this one on with an entry, or kBins.
  size_t next_used(size_t bin) const;
  std::unique_ptr<Leaf> new_leaf();

  std::array<Bin, kBins> bins_;
  std::array<uint64_t, kBins / 64> used_{};   // one bit per bin that has an entry
  std::vector<std::unique_ptr<Leaf>> spare_;  // kept, so that a steady state takes nothing from the heap
  size_t leaves_made_ = 0;
};

}  // namespace headroom
