// The transitive order of the items of a sequence. Knows nothing about the items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

// One bit for each pair of items, set if the second comes first.
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

 private:
  // A row has a bit for each item up to its own.
  static size_t begin_of(size_t item) {
    const size_t words = item / 64;
    return 64 * (words * (words + 1) / 2) + item % 64 * (words + 1);
  }

  std::vector<uint64_t> bits_;
};

}  // namespace headroom
