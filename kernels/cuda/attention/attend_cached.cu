// Attention of a few queries to a cache of keys and values, some of whose rows are new: each key and value is
// read once. The tiles of keys are shared by the blocks of a cluster, whose means are joined in their shared
// memory (Flash-Decoding: Dao, Haziza, Massa, Sizov 2023); tiles that the mask hides are not read, so that
// the time follows the length so far. See kernels/cpu/attention.cpp for the formulas.
#include <cooperative_groups.h>

#include <algorithm>
#include <cfloat>
#include <type_traits>

#include "kernels/cuda/attention/attention_call.cuh"
#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/early_start.cuh"
#include "kernels/cuda/fast_math.cuh"

namespace headroom::cuda {
namespace {

constexpr int kWarps = 4, kKeysOfWarp = kHeadTile / kWarps;
// Blocks of a cluster, as many as every GPU of this kind takes.
constexpr int kMaxCluster = 8;
constexpr int kNeighbors = 8;  // numbers of a row that a lane takes

struct CachedArguments {
  AttentionSizes sizes;
  ScoreMask mask;
  float scale, softcap;
  bool zero_nan_rows, in_lanes;
  Reals q, new_k, new_v, k, v;
  const int32_t* indices;
  int new_rows;
  RealsOut y;
};

// Neighbors as they are stored, 0 beyond the end of a row.
template <bool kHalf>
using Held = std::conditional_t<kHalf, StoredHalves<kNeighbors>, Stored<kNeighbors>>;

template <bool kHalf>
__device__ Held<kHalf> neighbors_of(const Reals& row, int column, int extent, bool in_lanes) {
  Held<kHalf> found{row.dtype, {}};
  if (in_lanes) {
    if (column >= extent) return found;
    if constexpr (kHalf) {
      return fetch_halves<kNeighbors>(row, column);
    } else {
      return row.template fetch<kNeighbors>(column);
    }
  }
#pragma unroll
  for (int i = 0; i < kNeighbors; ++i) {
    if (column + i >= extent) break;
    const uint32_t word = row.template fetch<1>(column + i).words[0];
    if constexpr (kHalf) {
      found.words[i / 2] |= word << (i % 2 * 16);
    } else {
      found.words[i] = word;
    }
  }
  return found;
}

// Sums or largest of the lanes that hold the same columns, or of those of one key.
template <int kFrom, int kTo, typename Join>
__device__ float joined(float x, const Join& join) {
#pragma unroll
  for (int other = kFrom; other < kTo; other *= 2) x = join(x, __shfl_xor_sync(~0u, x, other));
  return x;
}

// The share of some keys in a query's result: the largest score, the sum of 2^(score - largest), and the sums
// of the values.
template <int kRows, int kColumns>
struct Partial {
  float largest[kRows], total[kRows], sums[kRows][kColumns];
};

// Joins partial results: part(i) for i < count. The threads of a block take the numbers of all rows in turn.
template <int kRows, int kColumns, typename Part, typename Use>
__device__ void join(int count, const Part& part, const Use& use) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kWarps * 32) {
    const int row = i / kColumns, column = i % kColumns;
    float largest = -HUGE_VALF, total = 0, sum = 0;
    for (int j = 0; j < count; ++j) largest = fmaxf(largest, part(j)->largest[row]);
    for (int j = 0; j < count; ++j) {  // a part that shows no score may have NaN
      const float its = part(j)->largest[row], factor = its == largest ? 1 : power_of_2(its - largest);
      total = fmaf(part(j)->total[row], factor, total);
      sum = fmaf(part(j)->sums[row][column], factor, sum);
    }
    use(row, column, largest, total, sum);
  }
}

// A block computes kRows rows of the queries of the heads that share keys; kLanes lanes hold a key.
template <bool kHalf, int kLanes, int kRows>
__global__ void __launch_bounds__(kWarps * 32) attend_cached(const __grid_constant__ CachedArguments args) {
  constexpr int kAtOnce = 32 / kLanes, kLoads = kKeysOfWarp / kAtOnce, kColumns = kLanes * kNeighbors;
  using Parts = Partial<kRows, kColumns>;
  __shared__ Parts of_warp[kWarps], of_block;
  __shared__ int replaced[kMaxNewRows];
  const AttentionSizes& sizes = args.sizes;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int column = lane % kLanes * kNeighbors, extent = static_cast<int>(sizes.extent);
  const int keys = static_cast<int>(sizes.keys), tiles = static_cast<int>(sizes.key_tiles());
  const int64_t key_head = blockIdx.y, b = key_head / sizes.key_heads;
  const int group = static_cast<int>(sizes.group()), rows = static_cast<int>(sizes.queries) * group;
  const int first_row = static_cast<int>(blockIdx.z) * kRows;
  const auto head_of = [&](int row) {
    return key_head % sizes.key_heads * group + (first_row + row) % group;
  };
  const auto query_of = [&](int row) { return (first_row + row) / group; };
  if (threadIdx.x < args.new_rows)
    replaced[threadIdx.x] = static_cast<int>(turn_of_step(args.indices[threadIdx.x], sizes.keys));
  __syncthreads();

  const auto kind_of = [&](int row, int tile) {
    if (first_row + row >= rows) return MaskTile::kHidden;
    return args.mask.kind(sizes, b, head_of(row), query_of(row) / kHeadTile, tile);
  };
  const auto next_shown = [&](int tile) {
    for (; tile < tiles; tile += static_cast<int>(gridDim.x)) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (kind_of(row, tile) != MaskTile::kHidden) return tile;
      }
    }
    return tiles;
  };
  const auto key_of = [&](int tile, int i) {
    return tile * kHeadTile + warp * kKeysOfWarp + i * kAtOnce + lane / kLanes;
  };
  Held<kHalf> k[kLoads], v[kLoads];
  const auto fetch_cached = [&](int tile) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int key = min(key_of(tile, i), keys - 1);
      const int64_t at = (key_head * keys + key) * extent;
      k[i] = neighbors_of<kHalf>(args.k + at, column, extent, args.in_lanes);
      v[i] = neighbors_of<kHalf>(args.v + at, column, extent, args.in_lanes);
    }
  };
  const auto fetch_new = [&](int tile) {
    for (int n = 0; n < args.new_rows; ++n) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (replaced[n] != key_of(tile, i)) continue;
        const int64_t at = (key_head * args.new_rows + n) * extent;
        k[i] = neighbors_of<kHalf>(args.new_k + at, column, extent, args.in_lanes);
        v[i] = neighbors_of<kHalf>(args.new_v + at, column, extent, args.in_lanes);
      }
    }
  };

  int tile = next_shown(static_cast<int>(blockIdx.x));
  if (tile < tiles) fetch_cached(tile);
  wait_for_earlier_work();
  float q[kRows][kNeighbors], sums[kRows][kNeighbors] = {}, largest[kRows], total[kRows] = {};
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    largest[row] = -HUGE_VALF;
    const int valid = min(first_row + row, rows - 1) - first_row;
    const Reals at = args.q + ((b * sizes.queries + query_of(valid)) * sizes.heads + head_of(valid)) * extent;
    const auto lanes = widened(neighbors_of<kHalf>(at, column, extent, args.in_lanes));
#pragma unroll
    for (int i = 0; i < kNeighbors; ++i) q[row][i] = lanes.values[i];
  }
  const auto add = [](float x, float y) { return x + y; };
  const auto larger = [](float x, float y) { return fmaxf(x, y); };
  while (tile < tiles) {
    fetch_new(tile);
    float scores[kRows][kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto key = widened(k[i]);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        float product = 0;
#pragma unroll
        for (int j = 0; j < kNeighbors; ++j) product = fmaf(q[row][j], key.values[j], product);
        scores[row][i] = joined<1, kLanes>(product, add) * args.scale;
      }
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const MaskTile kind = kind_of(row, tile);
      const Reals mask = args.mask.of(b, head_of(row)) + query_of(row) * args.mask.layout.row_stride;
      float of_tile = -HUGE_VALF;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        float& score = scores[row][i];
        if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
        score *= kLog2E;
        const int key = key_of(tile, i);
        if (key >= keys || kind == MaskTile::kHidden) {
          score = -HUGE_VALF;
        } else if (kind == MaskTile::kMixed) {
          score += in_powers_of_2(mask[key]);
        }
        of_tile = fmaxf(of_tile, score);
        if (score != score) total[row] = score;  // NaN, which no largest number shows
      }
      of_tile = fmaxf(joined<kLanes, 32>(of_tile, larger), largest[row]);
      if (of_tile == -HUGE_VALF) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) scores[row][i] = 0;
        continue;
      }
      const float factor = power_of_2(largest[row] - of_tile);
      largest[row] = of_tile;
      total[row] *= factor;
#pragma unroll
      for (int j = 0; j < kNeighbors; ++j) sums[row][j] *= factor;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) total[row] += scores[row][i] = power_of_2(scores[row][i] - of_tile);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto value = widened(v[i]);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int j = 0; j < kNeighbors; ++j)
          sums[row][j] = fmaf(scores[row][i], value.values[j], sums[row][j]);
      }
    }
    tile = next_shown(tile + static_cast<int>(gridDim.x));
    if (tile < tiles) fetch_cached(tile);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    Parts& part = of_warp[warp];
    const float sum = joined<kLanes, 32>(total[row], add);
    if (lane == 0) part.largest[row] = largest[row], part.total[row] = sum;
#pragma unroll
    for (int j = 0; j < kNeighbors; ++j) {
      const float of_all = joined<kLanes, 32>(sums[row][j], add);
      if (lane < kLanes) part.sums[row][column + j] = of_all;
    }
  }
  __syncthreads();
  const auto store_row = [&](int row, int at, float, float sum_of_shares, float sum) {
    if (first_row + row >= rows || at >= extent) return;
    const bool is_zero = args.zero_nan_rows && !(sum_of_shares > 0);
    args.y.set(((b * sizes.queries + query_of(row)) * sizes.heads + head_of(row)) * extent + at,
               is_zero ? 0 : sum / sum_of_shares);
  };
  const auto part_of_warp = [&](int i) { return &of_warp[i]; };
  if (gridDim.x == 1) return join<kRows, kColumns>(kWarps, part_of_warp, store_row);
#if __CUDA_ARCH__ >= 900
  join<kRows, kColumns>(kWarps, part_of_warp, [&](int row, int at, float most, float shares, float sum) {
    of_block.largest[row] = most, of_block.total[row] = shares, of_block.sums[row][at] = sum;
  });
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  if (blockIdx.x == 0) {
    join<kRows, kColumns>(
        static_cast<int>(gridDim.x),
        [&](int i) { return cluster.map_shared_rank(&of_block, static_cast<unsigned>(i)); }, store_row);
  }
  cluster.sync();  // no block may end while its memory is read
#endif
}

using CachedKernel = void (*)(CachedArguments);

template <bool kHalf, int kLanes>
CachedKernel kernel_of_rows(int rows) {
  return rows == 1 ? attend_cached<kHalf, kLanes, 1> : attend_cached<kHalf, kLanes, 4>;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const CachedAttention& op, const Request& request) {
  using Op = CachedAttention;
  const Shape &q = request.inputs[Op::kQ].shape, &k = request.inputs[Op::kK].shape;
  if (request.outputs[0].shape.elements() == 0) return function_kernel([](const Call&) {});
  const DType stored = request.inputs[Op::kQ].dtype;
  for (size_t i = 0; i < Op::kIndices; ++i) {
    if (request.inputs[i].dtype != stored)
      throw InvalidArgument("attention to a cache has a CUDA kernel for operands of one type alone");
  }
  const AttentionSizes sizes(q, {k[0], k[2], k[1], k[3]});
  const MaskLayout layout(request.inputs[Op::kMask].shape, sizes);
  const int64_t all_rows = sizes.queries * sizes.group();
  const int rows = all_rows == 1 ? 1 : 4;
  const bool is_short = sizes.extent <= 64;
  const CachedKernel kernel =
      is_half(stored) ? (is_short ? kernel_of_rows<true, 8>(rows) : kernel_of_rows<true, 16>(rows))
                      : (is_short ? kernel_of_rows<false, 8>(rows) : kernel_of_rows<false, 16>(rows));
  const bool has_clusters = request.device.compute_capability() >= kMinCapabilityOfEarlyStart;
  const auto blocks =
      static_cast<unsigned>(has_clusters ? std::min<int64_t>(kMaxCluster, sizes.key_tiles()) : 1);
  const dim3 grid(blocks, static_cast<unsigned>(sizes.batch * sizes.key_heads),
                  static_cast<unsigned>(ceil_div(all_rows, rows)));
  const auto new_rows = static_cast<int>(request.inputs[Op::kIndices].shape[0]);
  return function_kernel(
      [=](const Call& call) {
        CachedArguments args{sizes,
                             {operand(call, Op::kMask), layout, call.in<MaskTile>(Op::kTiles)},
                             op.scale,
                             op.softcap,
                             op.zero_nan_rows,
                             false,
                             operand(call, Op::kQ),
                             operand(call, Op::kNewK),
                             operand(call, Op::kNewV),
                             operand(call, Op::kK),
                             operand(call, Op::kV),
                             call.in<int32_t>(Op::kIndices),
                             new_rows,
                             result(call)};
        args.in_lanes = sizes.extent % kNeighbors == 0 && are_aligned(call.inputs.first(Op::kIndices));
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {blocks, 1, 1};
        cudaLaunchConfig_t config{};
        config.gridDim = grid;
        config.blockDim = dim3(kWarps * 32);
        config.stream = call.stream;
        config.attrs = &attribute;
        config.numAttrs = blocks > 1 ? 1 : 0;
        HR_CHECK(cudaLaunchKernelEx(&config, kernel, args));
      },
      0, starts_early(request.device, {Op::kK, Op::kV, Op::kIndices, Op::kMask, Op::kTiles}));
}

}  // namespace headroom::cuda
