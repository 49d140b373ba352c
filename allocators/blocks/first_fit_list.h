// Free pieces by address, searched for the first that is large enough: a sorted array in leaves of 64, whose
// sizes are compared sixteen at a time, and the largest size of each leaf and of each 64 leaves. Knows only
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

class FirstFitList {
 public:
  static constexpr int32_t kNone = -1;

  // Makes room for that many non-empty keys; call it before set(). Throws std::bad_alloc and then changes
  // nothing.
  void prepare(size_t filled);
  // Sets the amount (>= 0) and the number of a key in [0, INT32_MAX).
  void set(int32_t key, int32_t amount, int32_t number) noexcept;
  // The number of the least key with at least `amount` (> 0), or kNone.
  int32_t first_with(int32_t amount) noexcept;
  // The number of the least non-empty key above this one, or kNone.
  int32_t first_above(int32_t key) const noexcept;
  // Returns the number of leaves and groups of leaves that all searches and changes have examined.
  int64_t visits() const { return visits_; }
  // Calls visit(number) for each key with at least `amount` (> 0), by key.
  template <typename Visit>
  void for_each_with(int32_t amount, const Visit& visit) const {
    for (uint32_t number = 0; number < order_.size(); ++number) {
      if (order_.size() > 1 && largest_[number] < amount) continue;
      const Leaf& leaf = at(number);
      for (uint32_t entry = 0; entry < leaf.count; ++entry) {
        if (leaf.amounts[entry / 4][entry % 4] >= amount) visit(leaf.numbers[entry]);
      }
    }
  }

 private:
  static constexpr uint32_t kEntries = 64;
  static constexpr uint32_t kGroup = 64;  // leaves
  using Four [[gnu::vector_size(16)]] = int32_t;
  // Empty entries stay, to be reused by their key or a neighbor. Entries after the last have the largest key
  // and no amount.
  struct Leaf {
    Four keys[kEntries / 4], amounts[kEntries / 4];
    int32_t numbers[kEntries];
    uint32_t count, filled;  // entries, and non-empty ones
  };
  struct Place {
    uint32_t leaf = 0, entry = 0;  // the leaf by key order
  };

  static uint32_t first_in(const Leaf& leaf, int32_t amount);
  static uint32_t keys_below(const Leaf& leaf, int32_t key);
  static int32_t largest_in(const Leaf& leaf);
  static void clear(Leaf& leaf);
  static void append_filled(Leaf& to, const Leaf& from, uint32_t begin, uint32_t end);

  Leaf& at(uint32_t leaf) { return leaves_[order_[leaf]]; }
  const Leaf& at(uint32_t leaf) const { return leaves_[order_[leaf]]; }
  Place place_of(int32_t key) const;
  void change(const Place& place, int32_t amount, int32_t number) noexcept;
  void insert(int32_t key, int32_t amount, int32_t number) noexcept;
  void make_room(uint32_t leaf) noexcept;
  void join(uint32_t leaf) noexcept;
  void set_largest(uint32_t leaf, int32_t amount) noexcept;
  void find_largest_of_groups(uint32_t first_leaf) noexcept;
  int32_t largest_of_group(uint32_t group) const noexcept;

  std::vector<Leaf> leaves_;             // in any order
  std::vector<uint32_t> order_, spare_;  // leaves by key, and unused ones
  std::vector<int32_t> first_keys_;      // by order: the least key of each leaf
  std::vector<int32_t> largest_;         // by order: the largest amount, kept while there are several leaves
  std::vector<int32_t> groups_;          // the largest amount of each group, kept while there are several
  Place last_;                           // last found or changed
  int64_t visits_ = 0;
};

}  // namespace headroom
