// The gradient of attention (see attend.cu) as two kernels, one with a block for 64 queries and one with a
// block for 64 keys and values, which compute the scores anew: so no sum is shared between blocks, and its
// bits are the same on every run.
#include <type_traits>

#include "kernels/cuda/attention/head_tiles.cuh"

namespace headroom::cuda {
namespace {

// Rows and columns of a warp's part of the gradient of scores: 32 columns at a time, for the registers.
constexpr int kGradPairs = 2;

// The statistics of a row (ops/attention.h) and their sum; queries beyond the last have no shares.
struct RowStatistics {
  float largest = HUGE_VALF, log_sum = 0, both = HUGE_VALF;

  RowStatistics() = default;
  __device__ explicit RowStatistics(const float* of_row)
      : largest(of_row[0]), log_sum(of_row[1]), both(of_row[0] + of_row[1]) {}
};

// Computes p and ds from scores, which are powers of 2 except for `factor`, and dy . v in `gradients`. If a
// mask may have made the scores large, their differences from the largest are computed first.
template <typename Largest, typename Shift, typename Product>
__device__ void finish_shares(float (&shares)[2 * kGradPairs][4], float (&gradients)[2 * kGradPairs][4],
                              float factor, bool is_masked, const Largest& largest, const Shift& shift,
                              const Product& product) {
  if (is_masked) {
#pragma unroll
    for (int j = 0; j < 2 * kGradPairs; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) shares[j][i] -= largest(j, i);
    }
  }
#pragma unroll
  for (int j = 0; j < 2 * kGradPairs; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      shares[j][i] = power_of_2(fmaf(shares[j][i], factor, -shift(j, i)));
      gradients[j][i] = shares[j][i] * (gradients[j][i] - product(j, i));
    }
  }
}

// dq, and dy . y for the kernel below.
template <typename Policy, int kExtent>
__global__ void __launch_bounds__(kAttentionThreads, kExtent <= 64 ? 3 : 2)
    attend_grad_queries(const __grid_constant__ AttentionArguments args) {
  extern __shared__ uint4 shared[];
  uint32_t* const rows = reinterpret_cast<uint32_t*>(shared);
  const auto stage_at = [&](int stage, int operand) {
    return rows + (2 + 2 * stage + operand) * kTileWords<kExtent>;
  };
  const AttentionSizes& sizes = args.sizes;
  const HeadBlock block(args, sizes.query_tiles(), true);
  const int queries = static_cast<int>(sizes.queries), keys = static_cast<int>(sizes.keys);
  TileCopy<kExtent>(block.matrix(args.q)).queue(rows, block.first());
  TileCopy<kExtent>(block.matrix(args.dy)).queue(rows + kTileWords<kExtent>, block.first());
  TileCopy<kExtent>(block.matrix(args.y)).queue(stage_at(0, 0), block.first());
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  LeftRows<kExtent> left(rows, block.warp * 16), left_dy(rows + kTileWords<kExtent>, block.warp * 16);
  left.hold(), left_dy.hold();

  RowStatistics statistics[2];
  float product[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = block.row + half * 8, row = query - block.first();
    const int64_t at = block.head * sizes.queries + query;
    float sum = 0;
#pragma unroll
    for (int word = block.t; word < kExtent / 2; word += 4) {
      const uint32_t a = rows[kTileWords<kExtent> + row * kHeadPitch<kExtent> + word],
                     b = stage_at(0, 0)[row * kHeadPitch<kExtent> + word];
      sum += Policy::low_term(a) * Policy::low_term(b) + Policy::high_term(a) * Policy::high_term(b);
    }
    product[half] = combined_of_row(sum, false);
    if (query >= queries) continue;
    statistics[half] = RowStatistics(args.statistics + 2 * at);
    if (block.t == 0) args.products[at] = product[half];
  }
  __syncthreads();

  float sums[kExtent / 8][4] = {};
  const TileCopy<kExtent> k(block.matrix(args.k)), v(block.matrix(args.v));
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
        const int end = min(kHeadTile, keys - tile * kHeadTile);
#pragma unroll 1
        for (int part = 0; part < end; part += 16 * kGradPairs) {
          float shares[2 * kGradPairs][4], gradients[2 * kGradPairs][4];
          multiply_rows<Policy, kExtent, kGradPairs>(shares, left, stage_at(stage, 0), part);
          multiply_rows<Policy, kExtent, kGradPairs>(gradients, left_dy, stage_at(stage, 1), part);
          const ScorePlace place{block.row, tile * kHeadTile + part + 2 * block.t, queries, keys, false};
          const MaskTile kind = kinds.get(tile, kind_of);
          // Under a soft cap, what is taken from the gradients is taken before they meet its slope.
          const float factor = block.finish_scores(shares, kind, place, 0, [&](int j, int i, float slope) {
            gradients[j][i] = (gradients[j][i] - product[i / 2]) * slope;
          });
          hide_beyond(shares, place);
          const bool is_masked = kind == MaskTile::kMixed;
          const float shift[2] = {is_masked ? statistics[0].log_sum : statistics[0].both,
                                  is_masked ? statistics[1].log_sum : statistics[1].both};
          finish_shares(
              shares, gradients, factor, is_masked, [&](int, int i) { return statistics[i / 2].largest; },
              [&](int, int i) { return shift[i / 2]; },
              [&](int, int i) { return args.softcap == 0 ? product[i / 2] : 0; });
          add_product<Policy, kExtent, kGradPairs>(sums, gradients, stage_at(stage, 0), part);
        }
      });
  const HeadMatrix dq = block.matrix(args.dq);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    store_head_row<Policy, kExtent>(dq, block.row + half * 8, sums, half, args.scale);
}

// dk and dv.
template <typename Policy, int kExtent>
__global__ void __launch_bounds__(kAttentionThreads, kExtent <= 64 ? 3 : 2)
    attend_grad_keys(const __grid_constant__ AttentionArguments args) {
  extern __shared__ uint4 shared[];
  uint32_t* const rows = reinterpret_cast<uint32_t*>(shared);
  const auto stage_at = [&](int stage, int operand) {
    return rows + (2 + 2 * stage + operand) * kTileWords<kExtent>;
  };
  // Statistics for the queries of a stage: the numbers of their RowStatistics, then dy . y.
  const auto rows_at = [&](int stage) {
    return reinterpret_cast<float*>(rows + 6 * kTileWords<kExtent>) + stage * 4 * kHeadTile;
  };
  const AttentionSizes& sizes = args.sizes;
  // The heads that share these keys, one after the other.
  const int group = static_cast<int>(sizes.group()), tiles_of_head = static_cast<int>(sizes.query_tiles());
  const HeadBlock block(args, sizes.key_tiles(), false, group);
  const int queries = static_cast<int>(sizes.queries), keys = static_cast<int>(sizes.keys);
  TileCopy<kExtent>(block.matrix(args.k)).queue(rows, block.first());
  TileCopy<kExtent>(block.matrix(args.v)).queue(rows + kTileWords<kExtent>, block.first());
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  LeftRows<kExtent> left(rows, block.warp * 16), left_v(rows + kTileWords<kExtent>, block.warp * 16);
  left.hold(), left_v.hold();

  float key_sums[kExtent / 8][4] = {}, value_sums[kExtent / 8][4] = {};
  const auto kind_of = [&](int tile) {
    return args.mask.kind(sizes, block.b, block.h + tile / tiles_of_head, tile % tiles_of_head, block.tile);
  };
  __shared__ MaskTile held_kinds[TileKinds::kHeld];
  const TileKinds kinds(held_kinds, group * tiles_of_head, kind_of);
  for_each_shown_tile(
      group * tiles_of_head, [&](int tile) { return kinds.get(tile, kind_of) == MaskTile::kHidden; },
      [&](int tile, int stage) {
        const int member = tile / tiles_of_head, first = tile % tiles_of_head * kHeadTile;
        const auto copy = [&](const HeadOperand& operand, int i) {
          const HeadMatrix from = operand.of(sizes, block.b, block.h + member, args.is_aligned);
          TileCopy<kExtent>(from).queue(stage_at(stage, i), first);
        };
        copy(args.q, 0);
        copy(args.dy, 1);
        if (threadIdx.x < kHeadTile) {
          const int query = first + static_cast<int>(threadIdx.x);
          const int64_t at = (block.head + member) * sizes.queries + query;
          RowStatistics statistics;
          if (query < queries) statistics = RowStatistics(args.statistics + 2 * at);
          float* const of_row = rows_at(stage) + threadIdx.x;
          of_row[0] = statistics.largest;
          of_row[kHeadTile] = statistics.log_sum;
          of_row[2 * kHeadTile] = statistics.both;
          of_row[3 * kHeadTile] = query < queries ? args.products[at] : 0;
        }
      },
      [&](int tile, int stage) {
        if (!block.has_rows(keys)) return;
        const int member = tile / tiles_of_head, first = tile % tiles_of_head * kHeadTile;
        const int end = min(kHeadTile, queries - first);
#pragma unroll 1
        for (int part = 0; part < end; part += 16 * kGradPairs) {
          float shares[2 * kGradPairs][4], gradients[2 * kGradPairs][4];
          multiply_rows<Policy, kExtent, kGradPairs>(shares, left, stage_at(stage, 0), part);
          multiply_rows<Policy, kExtent, kGradPairs>(gradients, left_v, stage_at(stage, 1), part);
          const float* const of_rows = rows_at(stage) + part + 2 * block.t;
          const ScorePlace place{block.row, first + part + 2 * block.t, keys, queries, true};
          const MaskTile kind = kinds.get(tile, kind_of);
          const float* const products = of_rows + 3 * kHeadTile;
          const float factor =
              block.finish_scores(shares, kind, place, member, [&](int j, int i, float slope) {
                gradients[j][i] = (gradients[j][i] - products[8 * j + i % 2]) * slope;
              });
          const bool is_masked = kind == MaskTile::kMixed;
          const float* const shifts = of_rows + (is_masked ? kHeadTile : 2 * kHeadTile);
          finish_shares(
              shares, gradients, factor, is_masked, [&](int j, int i) { return of_rows[8 * j + i % 2]; },
              [&](int j, int i) { return shifts[8 * j + i % 2]; },
              [&](int j, int i) { return args.softcap == 0 ? products[8 * j + i % 2] : 0; });
          add_product<Policy, kExtent, kGradPairs>(value_sums, shares, stage_at(stage, 1), part);
          add_product<Policy, kExtent, kGradPairs>(key_sums, gradients, stage_at(stage, 0), part);
        }
      });
  const HeadMatrix dk = block.matrix(args.dk), dv = block.matrix(args.dv);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store_head_row<Policy, kExtent>(dk, block.row + half * 8, key_sums, half, args.scale);
    store_head_row<Policy, kExtent>(dv, block.row + half * 8, value_sums, half, 1);
  }
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const AttentionGrad& op, const Request& request) {
  const AttentionCall attention(op, request);
  check_attention(request, attention.heads.count + 2, request.inputs[attention.heads.count + 2]);
  const DType stored = request.inputs[0].dtype;
  const AttentionKernel of_queries = choose_attention(
      stored, attention.sizes.extent, request.device,
      []<typename P, int e>(P, std::integral_constant<int, e>) { return attend_grad_queries<P, e>; });
  const AttentionKernel of_keys = choose_attention(
      stored, attention.sizes.extent, request.device,
      []<typename P, int e>(P, std::integral_constant<int, e>) { return attend_grad_keys<P, e>; });
  return function_kernel(
      [op, attention, of_queries, of_keys](const Call& call) {
        AttentionArguments args = attention.arguments(call, op.scale, op.softcap, false);
        const size_t y = 1 + attention.heads.count;
        args.dy = attention.rows_of(call.inputs[0]), args.q = attention.head(call.inputs, 1, 0);
        args.k = attention.head(call.inputs, 1, 1), args.v = attention.head(call.inputs, 1, 2);
        args.y = attention.rows_of(call.inputs[y]), args.statistics = call.in(y + 1);
        args.dq = attention.head(call.outputs, 0, 0), args.dk = attention.head(call.outputs, 0, 1);
        args.dv = attention.head(call.outputs, 0, 2);
        args.products = call.scratch<float>();
        const AttentionSizes& sizes = attention.sizes;
        launch_attention(of_queries, sizes.head_count() * sizes.query_tiles(),
                         bytes_of_head_tiles(sizes.extent, 6), args, call.stream);
        launch_attention(of_keys, sizes.batch * sizes.key_heads * sizes.key_tiles(),
                         bytes_of_head_tiles(sizes.extent, 6, 8 * kHeadTile), args, call.stream);
      },
      attention.sizes.head_count() * attention.sizes.queries * static_cast<int64_t>(sizeof(float)));
}
}  // namespace headroom::cuda
