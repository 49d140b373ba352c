// Tiles of heads in shared memory and products of them: the building blocks of attention kernels.
#pragma once

#include <cuda_pipeline.h>

#include <cmath>

#include "kernels/cuda/attention/attention_call.cuh"
#include "kernels/cuda/fast_math.cuh"

namespace headroom::cuda {

// The number of this thread's team: threads of a block with the same y go through tiles of their own.
template <int kTeams>
__device__ int team_of_thread() {
  return kTeams == 1 ? 0 : static_cast<int>(threadIdx.y);
}

// This thread's part of the copies of a head's tiles to shared memory, by its team: 16 bytes of every few
// rows.
template <int kExtent>
class TileCopy {
 public:
  __device__ explicit TileCopy(const HeadMatrix& from)
      : from_(from),
        row_(static_cast<int>(threadIdx.x) / kChunks),
        column_(static_cast<int>(threadIdx.x) % kChunks * 8),
        source_(from.at(row_, column_)),
        to_(row_ * kHeadPitch<kExtent> + column_ / 2) {}

  // Queues the copy of rows from `first` on; rows and columns beyond the matrix become 0.
  __device__ void queue(uint32_t* tile, int first) const {
    if (!from_.is_aligned) return copy_halves(tile, first);
    const uint16_t* source = source_ + first * from_.stride;
    if (first + kHeadTile <= from_.rows && kExtent == from_.extent) {
#pragma unroll
      for (int row = 0; row < kHeadTile; row += kRowsAtOnce, source += kRowsAtOnce * from_.stride)
        __pipeline_memcpy_async(tile + to_ + row * kHeadPitch<kExtent>, source, 16);
      return;
    }
#pragma unroll 1
    for (int row = 0; row < kHeadTile; row += kRowsAtOnce, source += kRowsAtOnce * from_.stride) {
      const bool is_inside = first + row_ + row < from_.rows && column_ < from_.extent;
      __pipeline_memcpy_async(tile + to_ + row * kHeadPitch<kExtent>, is_inside ? source : from_.data, 16,
                              static_cast<size_t>(is_inside ? 0 : 16));
    }
  }

 private:
  static constexpr int kChunks = kExtent / 8, kRowsAtOnce = kAttentionThreads / kChunks;

  __device__ void copy_halves(uint32_t* tile, int first) const {
#pragma unroll 1
    for (int row = 0; row < kHeadTile; row += kRowsAtOnce) {
      const int count = first + row_ + row < from_.rows ? min(from_.extent - column_, 8) : 0;
      const uint16_t* const source = source_ + (first + row) * from_.stride;
      for (int k = 0; k < 4; ++k) {
        const uint32_t low = 2 * k < count ? source[2 * k] : 0,
                       high = 2 * k + 1 < count ? source[2 * k + 1] : 0;
        tile[to_ + row * kHeadPitch<kExtent> + k] = low | high << 16;
      }
    }
  }

  HeadMatrix from_;
  int row_, column_;
  const uint16_t* source_;
  int to_;
};

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
  __device__ LeftRows(const uint32_t* tile, int first_row) : tile_(tile), first_row_(first_row) {}
  // Reads the rows, once they are in the tile.
  __device__ void hold() {
    if constexpr (kHeld) {
#pragma unroll
      for (int step = 0; step < kExtent / 16; ++step)
        load_left<kExtent>(held_[step], tile_, first_row_, step);
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

// The kinds of a block's tiles, fetched at once: single fetches would each wait for memory.
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

// A warp's part of the scores of a head: rows `row` and 8 below it, columns from `column` on, of `rows` by
// `columns`. With `is_turned` the rows are keys and the columns queries.
struct ScorePlace {
  int row, column, rows, columns;
  bool is_turned;
};

// Adds a mask to scores, as powers of 2. Issues 16 loads before it uses one.
template <int kColumns>
__device__ void add_mask(float (&scores)[kColumns][4], const Reals& mask, int64_t row_stride,
                         const ScorePlace& place) {
  const int64_t by_row = place.is_turned ? 1 : row_stride, by_column = place.is_turned ? row_stride : 1;
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
          const int row = min(place.row + i / 2 * 8, place.rows - 1),
                    column = min(place.column + 8 * (first + j) + i % 2, place.columns - 1);
          added[j][i] = number_at(row * by_row + column * by_column);
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
      for (int i = 0; i < 4; ++i) scores[first + j][i] += in_powers_of_2(added[j][i]);
    }
  }
}

// The tile of rows of a head that a block has, of `tiles`.
struct HeadBlock {
  const AttentionArguments& args;
  int64_t head, b, h;
  int tile;
  int warp, t;  // of the team; this lane's columns are 2t and 2t + 1 of every 8
  int row;      // row of the head, this lane's first; its other is 8 below

  // Under a causal mask the last queries have the most to do: they begin with `from_last`. `group`
  // neighboring heads have one block, whose head is the first of them.
  __device__ HeadBlock(const AttentionArguments& arguments, int64_t tiles, bool from_last, int64_t group = 1)
      : args(arguments),
        head(blockIdx.x / static_cast<unsigned>(tiles) * group),
        b(head / args.sizes.heads),
        h(head % args.sizes.heads),
        tile(static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles))),
        warp(static_cast<int>(threadIdx.x / 32)),
        t(static_cast<int>(threadIdx.x % 4)) {
    if (from_last) tile = static_cast<int>(tiles) - 1 - tile;
    row = first() + warp * 16 + static_cast<int>(threadIdx.x % 32) / 4;
  }
  __device__ int first() const { return tile * kHeadTile; }
  // Returns true if this warp has any of `rows`.
  __device__ bool has_rows(int rows) const { return first() + warp * 16 < rows; }
  __device__ HeadMatrix matrix(const HeadOperand& operand) const {
    return operand.of(args.sizes, b, h, args.is_aligned);
  }

  // Caps a warp's scores, adds the mask of a tile of this kind, of a head that is `member` after the block's,
  // and returns the factor that makes them powers of 2: for most tiles the scale, which then costs no
  // instruction of its own. Calls with_slope(j, i, slope of the cap) for each score that is capped.
  template <int kColumns, typename WithSlope>
  __device__ float finish_scores(float (&scores)[kColumns][4], MaskTile kind, const ScorePlace& place,
                                 int member, const WithSlope& with_slope) const {
    const float factor = args.scale * kLog2E;
    if (kind != MaskTile::kMixed && factor > 0 && args.softcap == 0) return factor;
    // tanh(x) = 1 - 2 / (1 + exp(2 x))
    const float inner = args.softcap == 0 ? 0 : 2 * factor / args.softcap, outer = args.softcap * kLog2E;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (args.softcap == 0) {
          scores[j][i] *= factor;
        } else {
          const float tanh = 1 - 2 * reciprocal(1 + power_of_2(inner * scores[j][i]));
          scores[j][i] = outer * tanh;
          with_slope(j, i, 1 - tanh * tanh);
        }
      }
    }
    if (kind == MaskTile::kMixed)
      add_mask(scores, args.mask.of(b, h + member), args.mask.layout.row_stride, place);
    return 1;
  }
};

// Columns of a warp's scores beyond the last take no share.
template <int kColumns>
__device__ void hide_beyond(float (&scores)[kColumns][4], const ScorePlace& place) {
  if (place.column - place.column % 8 + 8 * kColumns <= place.columns) return;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (place.column + 8 * j + i % 2 >= place.columns) scores[j][i] = -HUGE_VALF;
    }
  }
}

// Waits for the other threads of this thread's team.
template <int kTeams>
__device__ void meet_team() {
  if constexpr (kTeams == 1) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team_of_thread<kTeams>()), "n"(kAttentionThreads) : "memory");
  }
}

struct NothingToPrepare {
  __device__ void operator()() const {}
};

// Calls load(tile, stage) and then use(tile, stage) for each of `tiles` that is_hidden() does not leave out;
// the next tile is on its way while one is used. Each of the block's teams has every kTeams-th tile. Calls
// prepare() when the first tile is on its way; all copies but that tile's are then waited for by
// __pipeline_wait_prior(1).
template <int kTeams = 1, typename IsHidden, typename Load, typename Use, typename Prepare = NothingToPrepare>
__device__ void for_each_shown_tile(int tiles, IsHidden is_hidden, Load load, Use use,
                                    Prepare prepare = Prepare()) {
  const auto next_of = [&](int tile) {
    while (tile < tiles && is_hidden(tile)) tile += kTeams;
    return tile;
  };
  int tile = next_of(team_of_thread<kTeams>()), stage = 0;
  if (tile < tiles) load(tile, 0);
  __pipeline_commit();
  prepare();
  while (tile < tiles) {
    const int next = next_of(tile + kTeams);
    if (next < tiles) load(next, 1 - stage);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    meet_team<kTeams>();
    use(tile, stage);
    meet_team<kTeams>();
    tile = next;
    stage = 1 - stage;
  }
  __pipeline_wait_prior(0);
}

// Turns sums of powers of 2 less `base` into sums of powers less `next`, which is no smaller: their factor.
__device__ inline float factor_of_base(float base, float next) {
  return base == next ? 1 : power_of_2(base - next);
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
