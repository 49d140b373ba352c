// Labelled images in memory and the order in which training sees them. Knows no files and no tensors.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom {

struct Dataset {
  static constexpr int64_t kSide = 28;
  static constexpr int64_t kImageBytes = kSide * kSide;
  static constexpr int kClasses = 10;

  int64_t count = 0;
  std::vector<uint8_t> images;  // (count,28,28,1), 0 is background
  std::vector<uint8_t> labels;  // (count), each in [0, kClasses)
};

// The image indices [0, count) in the order of one epoch: a permutation that (seed, epoch) alone decides, the
// same on every machine.
std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch);

}  // namespace headroom
