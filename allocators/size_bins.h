// Which free blocks there are of which size, found in constant time: two levels of size classes after TLSF
// (Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", 2004). Knows the sizes
// alone, not where the blocks lie.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace headroom {

// Bin numbers of sizes that are multiples of the unit, and which bins have something in them.
class SizeBins {
 public:
  static constexpr int64_t kUnit = 512;
  // 32 classes to each doubling: sizes of one class differ by 3 % at most, and below 32 units each has its
  // own.
  static constexpr int kSplitBits = 5;
  static constexpr int kCount = 1024;  // up to 2^36 units, 32 TiB

  static int of(int64_t bytes) {
    const auto units = static_cast<uint64_t>(bytes / kUnit);
    if (units < (1u << kSplitBits)) return static_cast<int>(units);
    const int doublings = static_cast<int>(std::bit_width(units)) - 1 - kSplitBits;
    return (doublings << kSplitBits) + static_cast<int>(units >> doublings);
  }

  void set(int bin) {
    words_[static_cast<size_t>(bin / 64)] |= uint64_t{1} << (bin % 64);
    filled_words_ |= 1u << (bin / 64);
  }
  void clear(int bin) {
    uint64_t& word = words_[static_cast<size_t>(bin / 64)];
    word &= ~(uint64_t{1} << (bin % 64));
    if (word == 0) filled_words_ &= ~(1u << (bin / 64));
  }
  // The first bin at or after `bin` that has something in it; -1 when there is none.
  int first_from(int bin) const {
    if (bin >= kCount) return -1;
    const uint64_t rest = words_[static_cast<size_t>(bin / 64)] & (~uint64_t{0} << (bin % 64));
    if (rest != 0) return bin / 64 * 64 + std::countr_zero(rest);
    const uint32_t later = filled_words_ & (~uint32_t{1} << (bin / 64));
    if (later == 0) return -1;
    const int word = std::countr_zero(later);
    return word * 64 + std::countr_zero(words_[static_cast<size_t>(word)]);
  }

 private:
  std::array<uint64_t, kCount / 64> words_{};
  uint32_t filled_words_ = 0;
};

}  // namespace headroom
