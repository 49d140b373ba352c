// The first of many numbered things that has at least so many bytes, found without looking at the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

// A tree over the numbers in which each node has the most of those below it: finding and setting cost the
// logarithm of how many there are.
class FirstWith {
 public:
  static constexpr int32_t kNone = -1;

  // `number` (>= 0) has `bytes` (>= 0) from now on; those never set have none. Throws std::bad_alloc for a
  // number above all before, and then changes nothing.
  void set(int32_t number, int64_t bytes) {
    if (static_cast<size_t>(number) >= leaves_) grow(static_cast<size_t>(number) + 1);
    size_t at = leaves_ + static_cast<size_t>(number);
    most_[at] = bytes;
    for (at /= 2; at > 0; at /= 2) {
      const int64_t most = std::max(most_[2 * at], most_[2 * at + 1]);
      if (most_[at] == most) return;
      most_[at] = most;
    }
  }

  // The first number of at least `from` that has at least `bytes` (> 0), or kNone.
  int32_t find(int32_t from, int64_t bytes) const noexcept {
    size_t at = leaves_ + static_cast<size_t>(from);
    if (static_cast<size_t>(from) >= leaves_) return kNone;
    // Up to the first subtree to the right that has enough, then down to its first leaf.
    while (most_[at] < bytes) {
      while (at % 2 == 1) at /= 2;
      if (at == 0) return kNone;
      ++at;
    }
    while (at < leaves_) at = most_[2 * at] >= bytes ? 2 * at : 2 * at + 1;
    return static_cast<int32_t>(at - leaves_);
  }

 private:
  void grow(size_t numbers) {
    size_t leaves = std::max<size_t>(leaves_, 1);
    while (leaves < numbers) leaves *= 2;
    std::vector<int64_t> most(2 * leaves);
    std::copy(most_.begin() + static_cast<std::ptrdiff_t>(leaves_), most_.end(),
              most.begin() + static_cast<std::ptrdiff_t>(leaves));
    for (size_t at = leaves - 1; at > 0; --at) most[at] = std::max(most[2 * at], most[2 * at + 1]);
    most_.swap(most);
    leaves_ = leaves;
  }

  size_t leaves_ = 0;
  std::vector<int64_t> most_;  // node n has the children 2n and 2n + 1, the leaves are the upper half
};

}  // namespace headroom
