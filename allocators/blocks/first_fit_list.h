// Free pieces in order of address, and the first that is large enough: a sorted array in leaves of 64, whose
// sizes are looked at sixteen at a time. Knows numbers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

class FirstFitList {
 public:
  static constexpr int32_t kNone = -1;

  // Sees to it that set() finds room while at most so many keys hold something. To be called before all
  // others. Throws std::bad_alloc, and has then changed nothing.
  void prepare(size_t filled);
  // Says that the key (0 or more, less than INT32_MAX) holds so much from now on, 0 or more, and what its
  // owner calls it.
  void set(int32_t key, int32_t amount, int32_t number) noexcept;
  // The number of the least key that holds `amount` (> 0) or more, or kNone.
  int32_t first_with(int32_t amount) noexcept;
  // That of the least key above this one that holds something; kNone when there is none.
  int32_t first_above(int32_t key) const noexcept;
  // Calls visit(number) for each key that holds `amount` (> 0) or more, by key.
  template <typename Visit>
  void for_each_with(int32_t amount, const Visit& visit) const {
    for (const uint32_t leaf_at : order_) {
      const Leaf& leaf = leaves_[leaf_at];
      for (uint32_t entry = 0; entry < leaf.count; ++entry) {
        if (leaf.amounts[entry / 4][entry % 4] >= amount) visit(leaf.numbers[entry]);
      }
    }
  }

 private:
  static constexpr uint32_t kEntries = 64;
  using Four [[gnu::vector_size(16)]] = int32_t;
  // An entry that holds nothing stays where it is, for its key to come back or for one beside it. Behind the
  // last are keys above all that hold nothing.
  struct Leaf {
    Four keys[kEntries / 4], amounts[kEntries / 4];
    int32_t numbers[kEntries];
    uint32_t count, filled;  // of the former, all and those that hold something
  };
  struct Place {
    uint32_t leaf = 0, entry = 0;  // the leaf in the order of keys
  };

  static uint32_t first_in(const Leaf& leaf, int32_t amount);
  static uint32_t keys_below(const Leaf& leaf, int32_t key);
  static int32_t most_in(const Leaf& leaf);
  static void clear(Leaf& leaf);
  static void append_filled(Leaf& to, const Leaf& from, uint32_t begin, uint32_t end);

  Leaf& at(uint32_t leaf) { return leaves_[order_[leaf]]; }
  const Leaf& at(uint32_t leaf) const { return leaves_[order_[leaf]]; }
  Place place_of(int32_t key) const;
  void change(const Place& place, int32_t amount, int32_t number) noexcept;
  void insert(int32_t key, int32_t amount, int32_t number) noexcept;
  void make_room(uint32_t leaf) noexcept;
  void join(uint32_t leaf) noexcept;

  std::vector<Leaf> leaves_;             // in any order
  std::vector<uint32_t> order_, spare_;  // of these, by key, and those that are not used
  std::vector<int32_t> first_keys_;      // by order: keys from there on belong to the leaf
  std::vector<int32_t> most_;            // the largest amount in it, kept while there are several
  Place last_;                           // where something was last found or changed
};

}  // namespace headroom
