// Labeled images in memory, their origin, and their order in training. Knows no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

struct Dataset {
  static constexpr int64_t kSide = 28;
  static constexpr int64_t kImageBytes = kSide * kSide;
  static constexpr int kClasses = 10;

  int64_t count = 0;
  std::vector<uint8_t> images;  // (count,28,28,1), 0: background
  std::vector<uint8_t> labels;  // (count), each in [0, kClasses)
};

// Returns the image indices [0, count) in the order of one epoch. The permutation depends only on (seed,
// epoch).
std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch);

struct TrainingData {
  Dataset training, test;
  std::string origin;  // "12000 drawn digits", "60000 images of data/mnist"
};

inline constexpr int64_t kDrawnTraining = 12000, kDrawnTest = 2000;  // reach 97 % in one epoch of seconds

// Loads MNIST from `folder`; draws digits if it is empty. Throws InvalidArgument as load_mnist does.
TrainingData load_or_draw(const std::string& folder, uint64_t seed);

}  // namespace headroom
