// Tiles of heads in shared memory and products of them: what the kernels of attention are written with.
#pragma once

#include <cuda_pipeline.h>

#include <cmath>

#include "kernels/cuda/attention/attention_call.cuh"

namespace headroom::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;  // scores are powers of 2 on the way

// 2^x within two units in the last place (PTX ISA, ex2.approx); results below the normal numbers are 0.
__device__ inline float power_of_2(float x) {
#if defined(__CUDA_ARCH__)
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// Queues the copy of rows from `first` on; rows and columns beyond the matrix become 0.
template <int kExtent>
__device__ void load_head_tile(uint32_t* to, const HeadMatrix& from, int first) {
  constexpr int kChunks = kExtent / 8;  // of 16 bytes
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kHeadTile * kChunks; i += kAttentionThreads) {
    const int row = first + i / kChunks, column = i % kChunks * 8;
    uint32_t* const at = to + i / kChunks * kHeadPitch<kExtent> + column / 2;
    const int count = row < from.rows ? min(max(from.extent - column, 0), 8) : 0;
    const uint16_t* const source = count > 0 ? from.at(row, column) : from.data;
    if (from.is_aligned) {
      __pipeline_memcpy_async(at, source, 16, static_cast<size_t>(count > 0 ? 0 : 16));
      continue;
    }
    for (int k = 0; k < 4; ++k) {
      const uint32_t low = 2 * k < count ? source[2 * k] : 0,
                     high = 2 * k + 1 < count ? source[2 * k + 1] : 0;
      at[k] = low | high << 16;
    }
  }
}

// 16 rows of a tile as a left factor, for the 16 terms from 16 `step` on.
template <int kExtent>
__device__ void load_left(uint32_t (&words)[4], const uint32_t* tile, int first_row, int step) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  load_matrices(words, tile + (first_row + lane % 16) * kHeadPitch<kExtent> + step * 8 + lane / 16 * 4);
}

// The rows of a warp as a left factor: in registers if they are short.
template <int kExtent>
class LeftRows {
 public:
  static constexpr bool kHeld = kExtent <= 64;
  __device__ LeftRows(const uint32_t* tile, int first_row) : tile_(tile), first_row_(first_row) {
    if constexpr (kHeld) {
#pragma unroll
      for (int step = 0; step < kExtent / 16; ++step) load_left<kExtent>(held_[step], tile, first_row, step);
    }
  }
  __device__ void get(uint32_t (&words)[4], int step) const {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = held_[step][i];
    } else {
      load_left<kExtent>(words, tile_, first_row_, step);
    }
  }

 private:
  const uint32_t* tile_;
  int first_row_;
  uint32_t held_[kHeld ? kExtent / 16 : 1][4];
};

template <typename Policy>
__device__ void add_step(float (&d)[4], const uint32_t (&a)[4], uint32_t low, uint32_t high) {
  const uint32_t b[2] = {low, high};
  Policy::multiply_add(d, a, b);
}

// sums (16, 16 kPairs) = left times the transpose of 16 kPairs rows of a tile.
template <typename Policy, int kExtent, int kPairs>
__device__ void multiply_rows(float (&sums)[2 * kPairs][4], const LeftRows<kExtent>& left,
                              const uint32_t* tile, int first_row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t* const at =
      tile + (first_row + lane % 8 + lane / 16 * 8) * kHeadPitch<kExtent> + lane / 8 % 2 * 4;
#pragma unroll
  for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[j][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < kExtent / 16; ++step) {
    uint32_t a[4], b[4];
    left.get(a, step);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      load_matrices(b, at + pair * 16 * kHeadPitch<kExtent> + step * 8);
      add_step<Policy>(sums[2 * pair], a, b[0], b[1]);
      add_step<Policy>(sums[2 * pair + 1], a, b[2], b[3]);
    }
  }
}

// sums (16, kExtent) += left (16, 16 kPairs), which is as multiply_rows() leaves its sums, times as many rows
// of a tile.
template <typename Policy, int kExtent, int kPairs>
__device__ void add_product(float (&sums)[kExtent / 8][4], const float (&left)[2 * kPairs][4],
                            const uint32_t* tile, int first_row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t* const at = tile + (first_row + lane % 16) * kHeadPitch<kExtent> + lane / 16 * 4;
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    const float(&l)[4] = left[2 * pair], (&r)[4] = left[2 * pair + 1];
    const uint32_t a[4] = {Policy::word(l[0], l[1]), Policy::word(l[2], l[3]), Policy::word(r[0], r[1]),
                           Policy::word(r[2], r[3])};
    uint32_t b[4];
#pragma unroll
    for (int column = 0; column < kExtent / 16; ++column) {
      load_transposed_matrices(b, at + pair * 16 * kHeadPitch<kExtent> + column * 8);
      add_step<Policy>(sums[2 * column], a, b[0], b[1]);
      add_step<Policy>(sums[2 * column + 1], a, b[2], b[3]);
    }
  }
}

// Row `row` of 16 (this lane's first, or 8 below) of a warp's sums, times `factor`, to a matrix.
template <typename Policy, int kExtent>
__device__ void store_head_row(const HeadMatrix& to, int row, const float (&sums)[kExtent / 8][4], int half,
                               float factor) {
  if (row >= to.rows) return;
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < kExtent / 8; ++j) {
    const int column = 8 * j + 2 * t;
    if (column >= to.extent) return;
    uint16_t* const at = to.at(row, column);
    const uint32_t word = Policy::word(sums[j][2 * half] * factor, sums[j][2 * half + 1] * factor);
    if (to.is_aligned) {
      *reinterpret_cast<uint32_t*>(at) = word;
    } else {
      at[0] = static_cast<uint16_t>(word);
      if (column + 1 < to.extent) at[1] = static_cast<uint16_t>(word >> 16);
    }
  }
}

// The kinds of a block's tiles, fetched at once: one after the other they would wait for memory.
class TileKinds {
 public:
  static constexpr int kHeld = 512;
  // of(tile) is the kind of a tile; all threads of the block call this.
  template <typename Of>
  __device__ TileKinds(MaskTile* held, int tiles, const Of& of) : held_(held) {
    for (int tile = static_cast<int>(threadIdx.x); tile < min(tiles, kHeld); tile += kAttentionThreads)
      held[tile] = of(tile);
    __syncthreads();
  }
  template <typename Of>
  __device__ MaskTile get(int tile, const Of& of) const {
    return tile < kHeld ? held_[tile] : of(tile);
  }

 private:
  MaskTile* held_;
};

template <int kColumns>
__device__ void scale_scores(float (&scores)[kColumns][4], float factor) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[j][i] *= factor;
  }
}

// What a mask adds to a warp's sums, as powers of 2: rows `row` and 8 below it, columns from `column` on.
// With `is_turned` the rows are keys and the columns queries. Issues 16 loads before it uses one.
template <int kColumns>
__device__ void add_mask(float (&scores)[kColumns][4], const Reals& mask, int64_t row_stride, int row,
                         int column, int rows, int columns, bool is_turned) {
  const int64_t by_row = is_turned ? 1 : row_stride, by_column = is_turned ? row_stride : 1;
  constexpr int kAtOnce = 4;
  static_assert(kColumns % kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < kColumns; first += kAtOnce) {
    float added[kAtOnce][4];
    const auto fetch_all = [&](const auto& number_at) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at_row = min(row + i / 2 * 8, rows - 1),
                    at_column = min(column + 8 * (first + j) + i % 2, columns - 1);
          added[j][i] = number_at(at_row * by_row + at_column * by_column);
        }
      }
    };
    if (mask.dtype == DType::kF32) {
      fetch_all([&](int64_t at) { return static_cast<const float*>(mask.data)[at]; });
    } else {
      fetch_all([&](int64_t at) { return mask[at]; });
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[first + j][i] += added[j][i] * kLog2E;
    }
  }
}

// Which head and which tile of `tiles` a block has.
struct HeadTilePlace {
  int64_t head, b, h;
  int tile;
  __device__ HeadTilePlace(const AttentionSizes& sizes, int tiles)
      : head(blockIdx.x / tiles), b(head / sizes.heads), h(head % sizes.heads), tile(blockIdx.x % tiles) {}
};

// Calls load(tile, stage) and then use(tile, stage) for each of `tiles` that is_hidden() does not leave out;
// the next tile is on its way while one is used.
template <typename IsHidden, typename Load, typename Use>
__device__ void for_each_shown_tile(int tiles, IsHidden is_hidden, Load load, Use use) {
  const auto next_of = [&](int tile) {
    while (tile < tiles && is_hidden(tile)) ++tile;
    return tile;
  };
  int tile = next_of(0), stage = 0;
  if (tile < tiles) load(tile, 0);
  __pipeline_commit();
  while (tile < tiles) {
    const int next = next_of(tile + 1);
    if (next < tiles) load(next, 1 - stage);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    use(tile, stage);
    __syncthreads();
    tile = next;
    stage = 1 - stage;
  }
  __pipeline_wait_prior(0);
}

__device__ inline float combined_of_row(float x, bool is_maximum) {
#pragma unroll
  for (int other = 1; other < 4; other *= 2) {
    const float y = __shfl_xor_sync(0xffffffffu, x, other);
    x = is_maximum ? fmaxf(x, y) : x + y;
  }
  return x;
}
}  // namespace headroom::cuda
