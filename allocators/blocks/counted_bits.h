// Bits that know how many are set before each of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom {

class CountedBits {
 public:
  // From now on there are `bits`, all clear.
  void reset(int64_t bits) {
    words_.assign(words_for(bits), 0);
    is_counted_ = false;
  }
  // More of them, clear ones, if there are fewer. Throws std::bad_alloc and then changes nothing.
  void grow(int64_t bits) {
    if (words_for(bits) <= words_.size()) return;
    words_.resize(words_for(bits));
    is_counted_ = false;
  }
  void set(int64_t bit, bool value) noexcept {
    uint64_t& word = words_[static_cast<size_t>(bit / kBits)];
    const uint64_t mask = uint64_t{1} << (bit % kBits);
    word = value ? word | mask : word & ~mask;
    is_counted_ = false;
  }
  // Counts, for before(), if a bit has changed since. Costs a step for every 64 bits. Throws std::bad_alloc.
  void count() {
    if (is_counted_) return;
    before_.resize(words_.size());
    int64_t sum = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      before_[i] = static_cast<int32_t>(sum);
      sum += std::popcount(words_[i]);
    }
    is_counted_ = true;
  }
  // Returns the number of set bits before this one. Needs count() after the last change.
  int64_t before(int64_t bit) const noexcept {
    const auto word = static_cast<size_t>(bit / kBits);
    if (word == words_.size()) return word == 0 ? 0 : before(bit - 1) + (is_set(bit - 1) ? 1 : 0);
    return before_[word] + std::popcount(words_[word] & ((uint64_t{1} << (bit % kBits)) - 1));
  }
  bool is_set(int64_t bit) const noexcept {
    return (words_[static_cast<size_t>(bit / kBits)] >> (bit % kBits) & 1) != 0;
  }

  // Calls visit(first, count) for each run of set bits, in order.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    int64_t first = -1;  // start of the current run
    for (size_t i = 0; i < words_.size(); ++i) {
      const auto start = static_cast<int64_t>(i) * kBits;
      for (int at = 0; at < kBits;) {
        const uint64_t rest = words_[i] >> at;
        const int zeros = rest == 0 ? kBits - at : std::countr_zero(rest);
        if (zeros > 0 && first >= 0) {
          visit(first, start + at - first);
          first = -1;
        }
        at += zeros;
        if (at == kBits) break;
        if (first < 0) first = start + at;
        at += std::countr_one(words_[i] >> at);
      }
    }
    if (first >= 0) visit(first, static_cast<int64_t>(words_.size()) * kBits - first);
  }

 private:
  static constexpr int kBits = 64;
  static size_t words_for(int64_t bits) { return static_cast<size_t>((bits + kBits - 1) / kBits); }

  std::vector<uint64_t> words_;
  std::vector<int32_t> before_;  // each word
  bool is_counted_ = true;
};

}  // namespace headroom
