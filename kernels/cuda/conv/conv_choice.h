// Chooses tiles, columns and warps of a block for our convolution kernels on the tensor cores, and the number
// of multiprocessors for a kernel that runs with others. Pure arithmetic: knows the kernels' layout of shared
// memory, and no device.
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

// Threads of a block: fewer where each sums more columns and so needs more registers.
constexpr int max_threads(int columns) {
  return columns == 64 ? 384 : 512;
}

// In words, added to each pixel and, in the first two, to each column's part of the filter: neighbors then
// lie in different banks; in the third the four positions of a step.
inline constexpr int kForwardPadding = 4, kInputGradPadding = 4, kFilterGradPadding = 8;

// Limits of the filter gradient: one or two steps of every policy; taps x channels of a warp, two 16-row
// tiles.
inline constexpr int kPositionsOfStep = 16, kRowsOfWarp = 32, kMaxFilterGradWarps = 12;

// The resources of a GPU that a kernel may use.
struct GpuShare {
  int multiprocessors = 0;
  int64_t shared_limit_bytes = 0;  // per block
  int replicas = 1;                // that run the same kernels side by side
};

struct FilterGradTile {
  TileChoice choice;
  int positions = 0;  // per image in a tile, rounded up to kPositionsOfStep
  int pixels = 0;     // per image in shared memory
  int filters = 0;    // per block
  int warp_rows = 0;  // pieces of kRowsOfWarp taps x channels, in all
  int slices = 0;     // slices of the filters, one per block
};

// Both gradients of a layer read the same values: in a parallel plan they may run at the same time.
struct GradientTiles {
  std::optional<TileChoice> input;
  std::optional<FilterGradTile> filter;
};

// Returns nullopt if the kernel does not support such a convolution.
std::optional<TileChoice> choose_forward(const ConvGeometry& geometry, Math math, const GpuShare& gpu);
GradientTiles choose_gradients(const ConvGeometry& geometry, Math math, const GpuShare& gpu);

}  // namespace headroom::cuda
