// Which items of a sequence must come before which: a transitive relation. Knows nothing about the items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

// One bit for each pair of items.
class Ancestors {
 public:
  explicit Ancestors(size_t count) : words_((count + 63) / 64), bits_(count * words_) {}

  // Makes `ancestor` and all its ancestors ancestors of `item`. Complete the items in order.
  void add(size_t item, size_t ancestor) {
    for (size_t i = 0; i < words_; ++i) bits_[item * words_ + i] |= bits_[ancestor * words_ + i];
    bits_[item * words_ + ancestor / 64] |= uint64_t{1} << ancestor % 64;
  }

  bool has(size_t item, size_t ancestor) const {
    return (bits_[item * words_ + ancestor / 64] >> ancestor % 64 & 1) != 0;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

}  // namespace headroom
