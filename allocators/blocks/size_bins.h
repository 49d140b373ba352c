// Size classes of free blocks, searched in constant time: two levels as in TLSF (Masmano et al., "TLSF: a new
// dynamic memory allocator for real-time systems", 2004). Knows only sizes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace headroom {

// Bin numbers of sizes that are multiples of the unit, and which bins are not empty.
class SizeBins {
 public:
  static constexpr int64_t kUnit = 512;
  // 32 classes per doubling: sizes in a class differ by 3 % at most; below 64 units each size has its own.
  static constexpr int kSplitBits = 5;
  static constexpr int kCount = 1536;  // up to 2^52 units, 2 EiB

  static int of(int64_t bytes) {
    const uint64_t units = static_cast<uint64_t>(bytes) / kUnit;
    const int doublings = static_cast<int>(std::bit_width(units | 1u << kSplitBits)) - 1 - kSplitBits;
    return (doublings << kSplitBits) + static_cast<int>(units >> doublings);
  }

  void set(int bin) {
    const unsigned word = word_of(bin);
    words_[word] |= uint64_t{1} << (bin % 64u);
    filled_words_ |= uint64_t{1} << word;
  }
  void clear(int bin) {
    const unsigned word = word_of(bin);
    words_[word] &= ~(uint64_t{1} << (bin % 64u));
    if (words_[word] == 0) filled_words_ &= ~(uint64_t{1} << word);
  }
  // The first non-empty bin at or after `bin`, or -1.
  int first_from(int bin) const {
    if (bin >= kCount) return -1;
    const unsigned word = word_of(bin);
    const uint64_t rest = words_[word] & (~uint64_t{0} << (bin % 64u));
    if (rest != 0) return static_cast<int>(word * 64) + std::countr_zero(rest);
    const uint64_t later = filled_words_ & (~uint64_t{1} << word);
    if (later == 0) return -1;
    const int found = std::countr_zero(later);
    return found * 64 + std::countr_zero(words_[static_cast<size_t>(found)]);
  }
  // The last non-empty bin, or -1.
  int last() const {
    if (filled_words_ == 0) return -1;
    const int word = static_cast<int>(std::bit_width(filled_words_)) - 1;
    return word * 64 + static_cast<int>(std::bit_width(words_[static_cast<size_t>(word)])) - 1;
  }

 private:
  static unsigned word_of(int bin) { return static_cast<unsigned>(bin) / 64; }

  std::array<uint64_t, kCount / 64> words_{};
  uint64_t filled_words_ = 0;
};

}  // namespace headroom
