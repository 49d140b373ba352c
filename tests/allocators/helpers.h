// Helpers of the strategies' tests: numbers that are the same in each run, and the distance of two blocks.
#pragma once

#include <cstdint>

namespace headroom {

inline int64_t distance(const void* from, const void* to) {
  return static_cast<const char*>(to) - static_cast<const char*>(from);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // In [0, end).
  int64_t below(int64_t end) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(end));
  }

 private:
  uint64_t state_;
};

}  // namespace headroom
