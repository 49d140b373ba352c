// Which tiles our convolution kernels on the tensor cores take, how many columns and warps a block has, and
// on how many multiprocessors a kernel counts where others run beside it. Pure arithmetic: knows the kernels'
// layout of shared memory, and no device.
#pragma once

#include <optional>

#include "kernels/cuda/conv/conv_tile.h"
#include "kernels/kernel.h"

namespace headroom::cuda {

inline constexpr int kTermsOfChunk = 16;  // channels are taken in multiples of this: one or two steps
inline constexpr int kRowsOfGroup = 32;   // two 16-row tiles

// Terms to a word of shared memory, as operands are rounded.
constexpr int terms_of_word(Math math) {
  return math == Math::kBf16 || math == Math::kF16 ? 2 : 1;
}

// Words that the exchange of sums takes where `parts` warps share the terms of each of `groups` groups.
constexpr int64_t share_words(int64_t groups, int64_t parts, int64_t columns) {
  return (parts - 1) * groups * columns * kRowsOfGroup;
}

// Of a block. More registers for each thread where more columns are summed.
constexpr int most_threads(int columns) {
  return columns == 64 ? 384 : 512;
}

// In words, added to each pixel and, in the first two, to each column's part of the filter: neighbours then
// lie in different banks; in the third the four positions of a step.
inline constexpr int kForwardPadding = 4, kInputGradPadding = 4, kFilterGradPadding = 8;

// Of the filter gradient: one or two steps of every policy; taps x channels of a warp, two 16-row tiles.
inline constexpr int kPositionsOfStep = 16, kRowsOfWarp = 32, kMostFilterGradWarps = 12;

// What kernels can have of a GPU.
struct GpuShare {
  int multiprocessors = 0;
  int64_t shared_limit_bytes = 0;  // of a block
  int replicas = 1;                // that run the same kernels side by side
};

struct FilterGradTile {
  TileChoice choice;
  int positions = 0;  // of an image in a tile, rounded up to kPositionsOfStep
  int pixels = 0;     // of an image in shared memory
  int filters = 0;    // of a block
  int warp_rows = 0;  // pieces of kRowsOfWarp taps x channels, in all
  int slices = 0;     // of them, to a block each
};

// Of both gradients of a layer, which the same values feed: in a parallel plan they may run side by side.
struct GradientTiles {
  std::optional<TileChoice> input;
  std::optional<FilterGradTile> filter;
};

// Nothing where the kernel does not take such a convolution.
std::optional<TileChoice> choose_forward(const ConvGeometry& geometry, Math math, const GpuShare& gpu);
GradientTiles choose_gradients(const ConvGeometry& geometry, Math math, const GpuShare& gpu);

}  // namespace headroom::cuda
