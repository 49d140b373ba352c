// Which items of a sequence must come before which: a transitive relation. Knows nothing about the items.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom {

// One bit for each pair of items of which the second comes first.
class Ancestors {
 public:
  explicit Ancestors(size_t count) : bits_(begin_of(count)) {}

  // Makes `ancestor` and all its ancestors ancestors of `item`, which comes later. Complete the items in
  // order.
  void add(size_t item, size_t ancestor) {
    uint64_t* const row = bits_.data() + begin_of(item);
    const uint64_t* const other = bits_.data() + begin_of(ancestor);
    for (size_t i = 0; i <= ancestor / 64; ++i) row[i] |= other[i];
    row[ancestor / 64] |= uint64_t{1} << ancestor % 64;
  }

  bool has(size_t item, size_t ancestor) const {
    return ancestor < item && (bits_[begin_of(item) + ancestor / 64] >> ancestor % 64 & 1) != 0;
  }

  // For each of `count` items, the last of those `later`, in ascending order, that comes after it in the
  // sequence without following from it; -1 where all do.
  std::vector<int> last_unordered(size_t count, std::span<const int> later) const {
    std::vector<int> last(count, -1);
    std::vector<uint64_t> open(count / 64 + 1, ~uint64_t{0});  // items whose last is not found yet
    for (auto at = later.rbegin(); at != later.rend(); ++at) {
      const auto item = static_cast<size_t>(*at);
      const uint64_t* const row = bits_.data() + begin_of(item);
      for (size_t word = 0; word <= item / 64; ++word) {
        uint64_t found = open[word] & ~row[word];
        if (word == item / 64) found &= (uint64_t{1} << item % 64) - 1;
        open[word] &= ~found;
        for (; found != 0; found &= found - 1) {
          last[word * 64 + static_cast<size_t>(std::countr_zero(found))] = *at;
        }
      }
    }
    return last;
  }

 private:
  // A row has a bit for each item up to its own.
  static size_t begin_of(size_t item) {
    const size_t words = item / 64;
    return 64 * (words * (words + 1) / 2) + item % 64 * (words + 1);
  }

  std::vector<uint64_t> bits_;
};

}  // namespace headroom
