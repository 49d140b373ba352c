// The inner loop of convolutions on the tensor cores, shared by the forward pass and the input gradient.
// Knows no pooling.
#pragma once

#include "kernels/cuda/conv/conv_choice.h"
#include "kernels/cuda/mma.cuh"

namespace headroom::cuda {

// The layout of a sum's terms in shared memory, in words: taps in rows of kernel_w, each with chunks_of_tap
// chunks.
struct TapWalk {
  int chunks_of_tap, kernel_w;
  int pixel_words, row_words;  // from a tap's pixel to that of the tap to its right, and below it
  int tap_words,
      column_words;  // from a tap's part of the filter to the next one's, and from a column to the next
};

// sums[i][j] += rows x filter over the chunks [first, end) of kTermsOfChunk channels of one tap each. rows[i]
// is the start of the lane's row of 16-row tile i for the first tap: row lane % 16, from word 4 * (lane / 16)
// on.
template <typename Policy, int kColumnTiles>
__device__ void accumulate(float (&sums)[2][kColumnTiles][4], const uint32_t* const (&rows)[2],
                           const uint32_t* filter, int first, int end, const TapWalk& walk) {
  constexpr int kWords = kTermsOfChunk / Policy::kTermsOfWord;
  static_assert(kColumnTiles % 2 == 0);
  const int lane = threadIdx.x % 32;
  int tap = first / walk.chunks_of_tap, in_tap = first % walk.chunks_of_tap;
  int column_of_tap = tap % walk.kernel_w;
  int offset = tap / walk.kernel_w * walk.row_words + column_of_tap * walk.pixel_words + in_tap * kWords;
  // Pointers for two column tiles: columns lane % 8 (+ 8 for the upper half of the warp), from word 0 or 4.
  const uint32_t* columns[kColumnTiles / 2];
#pragma unroll
  for (int j = 0; j < kColumnTiles / 2; ++j) {
    columns[j] = filter + (j * 16 + lane % 8 + lane / 16 * 8) * walk.column_words + lane / 8 % 2 * 4 +
                 tap * walk.tap_words + in_tap * kWords;
  }
#pragma unroll 1
  for (int chunk = first; chunk < end; ++chunk) {
#pragma unroll
    for (int word = 0; word < kWords; word += kWordsOfStep) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) load_matrices(a[i], rows[i] + offset + word);
#pragma unroll
      for (int j = 0; j < kColumnTiles; j += 2) {
        uint32_t b[4];
        load_matrices(b, columns[j / 2] + word);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t column[2] = {b[2 * half], b[2 * half + 1]};
#pragma unroll
          for (int i = 0; i < 2; ++i) Policy::multiply_add(sums[i][j + half], a[i], column);
        }
      }
    }
    offset += kWords;
    int filter_words = kWords;
    if (++in_tap == walk.chunks_of_tap) {
      in_tap = 0;
      offset += walk.pixel_words - walk.chunks_of_tap * kWords;
      filter_words += walk.tap_words - walk.chunks_of_tap * kWords;
      if (++column_of_tap == walk.kernel_w) {
        column_of_tap = 0;
        offset += walk.row_words - walk.kernel_w * walk.pixel_words;
      }
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles / 2; ++j) columns[j] += filter_words;
  }
}

// Adds up the sums of `parts` warps that took different terms of the same group; the warp of part 0 gets the
// result. All threads of the block must call it; `shares` has share_words() words that are free.
template <int kColumnTiles>
__device__ void add_parts(float (&sums)[2][kColumnTiles][4], int group, int groups, int part, int parts,
                          uint32_t* shares) {
  constexpr int kSums = 2 * kColumnTiles * 4;
  float* const shared = reinterpret_cast<float*>(shares) + threadIdx.x % 32;
  float* const flat = &sums[0][0][0];
  __syncthreads();
  if (part > 0 && group < groups) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) shared[(((part - 1) * groups + group) * kSums + s) * 32] = flat[s];
  }
  __syncthreads();
  if (part > 0 || group >= groups) return;
  for (int other = 0; other < parts - 1; ++other) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) flat[s] += shared[((other * groups + group) * kSums + s) * 32];
  }
}

}  // namespace headroom::cuda
