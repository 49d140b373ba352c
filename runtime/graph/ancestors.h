// Which items of a sequence have to come before which, closed under "before what comes before". Knows nothing
// of what the items are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

// One bit for each pair of items.
class Ancestors {
 public:
  explicit Ancestors(size_t count) : words_((count + 63) / 64), bits_(count * words_) {}

  // Puts `ancestor` and all that comes before it before `item`. Items are to be completed in order.
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
