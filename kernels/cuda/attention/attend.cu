// Attention of heads on the tensor cores, for operands stored in 16 bits: FlashAttention-2 (Dao 2023). A
// block processes 64 queries of one head in tiles of 64 keys; a warp has 16 of its rows, and the scores are
// only in registers. See kernels/cpu/attention.cpp for the formulas.
#include <type_traits>

#include "kernels/cuda/attention/head_tiles.cuh"

namespace headroom::cuda {
namespace {

template <typename Policy, int kExtent>
__global__ void __launch_bounds__(kAttentionThreads, kExtent <= 64 ? 4 : 2)
    attend(const __grid_constant__ AttentionArguments args) {
  constexpr int kPairs = kHeadTile / 16;
  extern __shared__ uint4 shared[];
  uint32_t* const rows = reinterpret_cast<uint32_t*>(shared);
  const auto stage_at = [&](int stage, int operand) {
    return rows + (1 + 2 * stage + operand) * kTileWords<kExtent>;
  };
  const AttentionSizes& sizes = args.sizes;
  const HeadBlock block(args, sizes.query_tiles(), true);
  const int queries = static_cast<int>(sizes.queries), keys = static_cast<int>(sizes.keys);
  const TileCopy<kExtent> k(block.matrix(args.k)), v(block.matrix(args.v));
  TileCopy<kExtent>(block.matrix(args.q)).queue(rows, block.first());
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const LeftRows<kExtent> left(rows, block.warp * 16);

  // Shares are powers of 2 less `base`, which follows the largest score of a row at a distance: a product
  // with sums is rare, and shares stay below 2^kSlack.
  constexpr float kSlack = 8;
  float sums[kExtent / 8][4] = {}, total[2] = {};
  float base[2] = {-HUGE_VALF, -HUGE_VALF}, largest_of_row[2] = {-HUGE_VALF, -HUGE_VALF};
  const auto kind_of = [&](int tile) { return args.mask.kind(sizes, block.b, block.h, block.tile, tile); };
  __shared__ MaskTile held_kinds[TileKinds::kHeld];
  const TileKinds kinds(held_kinds, static_cast<int>(sizes.key_tiles()), kind_of);
  for_each_shown_tile(
      static_cast<int>(sizes.key_tiles()),
      [&](int tile) { return kinds.get(tile, kind_of) == MaskTile::kHidden; },
      [&](int tile, int stage) {
        k.queue(stage_at(stage, 0), tile * kHeadTile);
        v.queue(stage_at(stage, 1), tile * kHeadTile);
      },
      [&](int tile, int stage) {
        if (!block.has_rows(queries)) return;
        float scores[2 * kPairs][4];
        multiply_rows<Policy, kExtent, kPairs>(scores, left, stage_at(stage, 0), 0);
        const ScorePlace place{block.row, tile * kHeadTile + 2 * block.t, queries, keys, false};
        const float factor =
            block.finish_scores(scores, kinds.get(tile, kind_of), place, 0, [](int, int, float) {});
        hide_beyond(scores, place);
        float largest[2] = {-HUGE_VALF, -HUGE_VALF};
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], scores[j][i]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          largest[half] = combined_of_row(largest[half], true) * factor;
          largest_of_row[half] = fmaxf(largest_of_row[half], largest[half]);
        }
        if (__any_sync(~0u, largest[0] > base[0] + kSlack || largest[1] > base[1] + kSlack)) {
          float rescale[2];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float next = fmaxf(base[half], largest[half]);
            rescale[half] = next == -HUGE_VALF ? 1 : power_of_2(base[half] - next);
            total[half] *= rescale[half];
            base[half] = next;
          }
#pragma unroll
          for (int j = 0; j < kExtent / 8; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[j][i] *= rescale[i / 2];
          }
        }
        const float shift[2] = {base[0] == -HUGE_VALF ? 0 : base[0], base[1] == -HUGE_VALF ? 0 : base[1]};
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            total[i / 2] += scores[j][i] = power_of_2(fmaf(scores[j][i], factor, -shift[i / 2]));
        }
        add_product<Policy, kExtent, kPairs>(sums, scores, stage_at(stage, 1), 0);
      });

  const HeadMatrix y = block.matrix(args.y);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = combined_of_row(total[half], false);
    const bool is_zero = args.zero_nan_rows && !(sum > 0);
    const int query = block.row + half * 8;
    if (is_zero) {
#pragma unroll
      for (int j = 0; j < kExtent / 8; ++j) sums[j][2 * half] = sums[j][2 * half + 1] = 0;
    }
    store_head_row<Policy, kExtent>(y, query, sums, half, is_zero ? 0 : 1 / sum);
    if (block.t == 0 && query < queries) {
      float* const statistics = args.computed_statistics + 2 * (block.head * sizes.queries + query);
      statistics[0] = is_zero ? HUGE_VALF : largest_of_row[half];
      const float distance = base[half] == largest_of_row[half] ? 0 : base[half] - largest_of_row[half];
      statistics[1] = is_zero ? 0 : distance + log2f(sum);
    }
  }
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const Attention& op, const Request& request) {
  const AttentionCall attention(op, request);
  check_attention(request, attention.heads.count, request.outputs[1]);
  const AttentionKernel kernel =
      choose_attention(request.inputs[0].dtype, attention.sizes.extent, request.device,
                       []<typename P, int e>(P, std::integral_constant<int, e>) { return attend<P, e>; });
  return function_kernel([op, attention, kernel](const Call& call) {
    AttentionArguments args = attention.arguments(call, op.scale, op.softcap, op.zero_nan_rows);
    args.q = attention.head(call.inputs, 0, 0), args.k = attention.head(call.inputs, 0, 1);
    args.v = attention.head(call.inputs, 0, 2), args.y = attention.rows_of(call.outputs[0]);
    args.computed_statistics = call.out(1);
    const AttentionSizes& sizes = attention.sizes;
    launch_attention(kernel, sizes.head_count() * sizes.query_tiles(), bytes_of_head_tiles(sizes.extent, 5),
                     args, call.stream);
  });
}
}  // namespace headroom::cuda
