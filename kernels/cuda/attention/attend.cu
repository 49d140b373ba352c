// Attention of heads on the tensor cores, for operands stored in 16 bits: FlashAttention-2 (Dao 2023). A
// block takes 64 queries of one head and goes over tiles of 64 keys; a warp has 16 of its rows, and the
// scores are in registers alone. See kernels/cpu/attention.cpp for the formulas.
#include <type_traits>

#include "kernels/cuda/attention/head_tiles.cuh"

namespace headroom::cuda {
namespace {

template <typename Policy, int kExtent>
__global__ void __launch_bounds__(kAttentionThreads) attend(const __grid_constant__ AttentionArguments args) {
  constexpr int kPairs = kHeadTile / 16;
  extern __shared__ uint4 shared[];
  uint32_t* const rows = reinterpret_cast<uint32_t*>(shared);
  const auto stage_at = [&](int stage, int operand) {
    return rows + (1 + 2 * stage + operand) * kTileWords<kExtent>;
  };
  const AttentionSizes& sizes = args.sizes;
  const int tiles = static_cast<int>(sizes.query_tiles()), keys = static_cast<int>(sizes.keys);
  HeadTilePlace place(sizes, tiles);
  place.tile = tiles - 1 - place.tile;  // under a causal mask the last ones have the most to do
  const HeadMatrix q = args.q.of(sizes, place.b, place.h, args.is_aligned),
                   k = args.k.of(sizes, place.b, place.h, args.is_aligned),
                   v = args.v.of(sizes, place.b, place.h, args.is_aligned),
                   y = args.y.of(sizes, place.b, place.h, args.is_aligned);
  const Reals mask = args.mask.of(place.b, place.h);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            t = lane % 4;
  const int first =
      place.tile * kHeadTile + warp * 16 + lane / 4;  // this lane's first query; the other is 8 below
  load_head_tile<kExtent>(rows, q, place.tile * kHeadTile);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const LeftRows<kExtent> left(rows, warp * 16);

  float sums[kExtent / 8][4] = {}, largest[2] = {-HUGE_VALF, -HUGE_VALF}, total[2] = {};
  const auto kind_of = [&](int tile) { return args.mask.kind(sizes, place.b, place.h, place.tile, tile); };
  __shared__ MaskTile held_kinds[TileKinds::kHeld];
  const TileKinds kinds(held_kinds, static_cast<int>(sizes.key_tiles()), kind_of);
  for_each_shown_tile(
      static_cast<int>(sizes.key_tiles()),
      [&](int tile) { return kinds.get(tile, kind_of) == MaskTile::kHidden; },
      [&](int tile, int stage) {
        load_head_tile<kExtent>(stage_at(stage, 0), k, tile * kHeadTile);
        load_head_tile<kExtent>(stage_at(stage, 1), v, tile * kHeadTile);
      },
      [&](int tile, int stage) {
        float scores[2 * kPairs][4];
        multiply_rows<Policy, kExtent, kPairs>(scores, left, stage_at(stage, 0), 0);
        const bool is_mixed = kinds.get(tile, kind_of) == MaskTile::kMixed;
        scale_scores(scores, args.scale * kLog2E);
        if (is_mixed) {
          add_mask(scores, mask, args.mask.layout.row_stride, first, tile * kHeadTile + 2 * t, q.rows, keys,
                   false);
        }
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = tile * kHeadTile + 8 * j + 2 * t + i % 2;
            if (key >= keys) scores[j][i] = -HUGE_VALF;
          }
        }
        float rescale[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float larger = largest[half];
#pragma unroll
          for (int j = 0; j < 2 * kPairs; ++j)
            larger = fmaxf(larger, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
          larger = combined_of_row(larger, true);
          const float base = larger == -HUGE_VALF ? 0 : larger;
          rescale[half] = power_of_2(largest[half] - base);
          largest[half] = larger;
          total[half] *= rescale[half];
#pragma unroll
          for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i)
              total[half] += scores[j][i] = power_of_2(scores[j][i] - base);
          }
        }
#pragma unroll
        for (int j = 0; j < kExtent / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[j][i] *= rescale[i / 2];
        }
        add_product<Policy, kExtent, kPairs>(sums, scores, stage_at(stage, 1), 0);
      });

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = combined_of_row(total[half], false);
    const bool is_zero = args.zero_nan_rows && !(sum > 0);
    const int query = first + half * 8;
    if (is_zero) {
#pragma unroll
      for (int j = 0; j < kExtent / 8; ++j) sums[j][2 * half] = sums[j][2 * half + 1] = 0;
    }
    store_head_row<Policy, kExtent>(y, query, sums, half, is_zero ? 0 : 1 / sum);
    if (t == 0 && query < q.rows) {
      args.log_sums.set(place.head * sizes.queries + query,
                        is_zero ? HUGE_VALF : (largest[half] + log2f(sum)) / kLog2E);
    }
  }
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const Attention& op, const Request& request) {
  check_attention(request, 3);
  const AttentionCall plan(request, 0, 3);
  const AttentionSizes& sizes = plan.sizes;
  const AttentionKernel kernel =
      choose_attention(request.inputs[0].dtype, sizes.extent, request.device,
                       []<typename P, int e>(P, std::integral_constant<int, e>) { return attend<P, e>; });
  return function_kernel(
      [op, plan, kernel](const Call& call) {
        AttentionArguments args = plan.arguments(call, op.scale, op.zero_nan_rows);
        args.q = head_operand(call.inputs[0]), args.k = head_operand(call.inputs[1]),
        args.v = head_operand(call.inputs[2]);
        args.y = head_operand(call.outputs[0]), args.log_sums = result(call, 1);
        launch_attention(kernel, plan.sizes.head_count() * plan.sizes.query_tiles(),
                         bytes_of_head_tiles(plan.sizes.extent, 5), args, call.stream);
      },
      plan.workspace.bytes);
}
}  // namespace headroom::cuda
