// Finds the tiles of a mask that hide all of their scores, and those that hide none.
#include "kernels/cuda/attention/attention_call.cuh"
#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// Flags of a tile: the mask shows one of its scores, or changes one.
constexpr unsigned kShown = 1, kChanged = 2;
// Tiles that a block classifies at once.
constexpr int kTilesAtOnce = 512;

// Returns four neighbors of a mask starting at `key`; `beyond` after the last key.
__device__ inline Lanes<float, 4> mask_group(const Reals& row, int64_t key, int64_t keys, bool is_aligned,
                                             float beyond) {
  if (is_aligned && key + 4 <= keys) return load<4>(row + key);
  Lanes<float, 4> lanes;
#pragma unroll
  for (int i = 0; i < 4; ++i) lanes.values[i] = key + i < keys ? row[key + i] : beyond;
  return lanes;
}

// Threads of a block, the maximum: there are at most as many blocks as rows of tiles, a few for each
// multiprocessor of a GPU.
constexpr int kClassifyThreads = 1024;

// Classifies the tiles of a row of tiles: a block for each, a warp for a row at a time.
__global__ void __launch_bounds__(kClassifyThreads)
    classify_tiles(AttentionSizes sizes, MaskLayout layout, Reals mask, bool is_aligned, MaskTile* tiles) {
  constexpr int kGroups = 4;  // on their way at once
  __shared__ unsigned found[kTilesAtOnce];
  __shared__ float below[kHeadTile];  // the limit below which a score is hidden, for each row
  const int64_t of_head = layout.row_strips == 0 ? 1 : sizes.query_tiles();
  const int64_t first = blockIdx.x % of_head * kHeadTile;
  const int rows = static_cast<int>(min(layout.queries - first, int64_t{kHeadTile}));
  const Reals at = mask + (blockIdx.x / of_head * layout.queries + first) * sizes.keys;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int row = warp; row < rows; row += kClassifyThreads / 32) {
    float largest = -HUGE_VALF;
    for (int64_t key = 4 * lane; key < sizes.keys; key += 128 * kGroups) {
      Lanes<float, 4> groups[kGroups];
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
        groups[i] = mask_group(at + row * sizes.keys, key + 128 * i, sizes.keys, is_aligned, -HUGE_VALF);
#pragma unroll
      for (int i = 0; i < 4 * kGroups; ++i) largest = fmaxf(largest, groups[i / 4].values[i % 4]);
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
    if (lane == 0) below[row] = largest - kHiddenBelow;
  }
  for (int64_t begin = 0; begin < sizes.key_tiles(); begin += kTilesAtOnce) {
    const int count = static_cast<int>(min(sizes.key_tiles() - begin, int64_t{kTilesAtOnce}));
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kClassifyThreads) found[i] = 0;
    __syncthreads();
    for (int row = warp; row < rows; row += kClassifyThreads / 32) {
      for (int group = lane; group < count * kHeadTile / 4; group += 32 * kGroups) {
        Lanes<float, 4> groups[kGroups];
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          groups[i] = mask_group(at + row * sizes.keys, begin * kHeadTile + 4 * (group + 32 * i), sizes.keys,
                                 is_aligned, -HUGE_VALF);
        }
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          const int at_group = group + 32 * i;
          unsigned flags = 0;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float value = groups[i].values[k];
            if (begin * kHeadTile + 4 * at_group + k >= sizes.keys) continue;
            if (!(value == -HUGE_VALF || value < below[row])) flags |= kShown;
            if (value != 0) flags |= kChanged;
          }
          const int tile = at_group * 4 / kHeadTile;
          if (tile < count && (flags & ~found[tile]) != 0) atomicOr(&found[tile], flags);
        }
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kClassifyThreads) {
      tiles[blockIdx.x * sizes.key_tiles() + begin + i] = (found[i] & kShown) == 0     ? MaskTile::kHidden
                                                          : (found[i] & kChanged) != 0 ? MaskTile::kMixed
                                                                                       : MaskTile::kPlain;
    }
    __syncthreads();
  }
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const MaskTiles& op, const Request& request) {
  const AttentionSizes sizes(op.scores);
  const MaskLayout layout(request.inputs[0].shape, sizes);
  return function_kernel([=](const Call& call) {
    const Reals mask = operand(call, 0);
    if (layout.strips == 0) return;
    launch(classify_tiles, static_cast<unsigned>(layout.strips), kClassifyThreads, call.stream, sizes, layout,
           mask, sizes.keys % 4 == 0 && aligned<4>(mask), call.out<MaskTile>());
  });
}

}  // namespace headroom::cuda
