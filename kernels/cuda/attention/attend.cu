// Attention of heads on the tensor cores, for operands stored in 16 bits: FlashAttention-2 (Dao 2023). A
// block processes 64 queries of one head in tiles of 64 keys; a warp has 16 of its rows, and the scores are
// only in registers. Where there are few blocks, several teams of a block share the tiles of keys, and their
// softmaxes are joined at the end. See kernels/cpu/attention.cpp for the formulas.
#include <type_traits>

#include "kernels/cuda/attention/head_tiles.cuh"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

// Teams of a multiprocessor whose registers suffice at once.
constexpr int teams_at_once(int64_t extent) {
  return extent <= 64 ? 4 : 2;
}
// The most teams to a block. 1 leaves all keys of a block to one team.
constexpr int kMaxTeams = 4;

// A thread's part of the softmax of its team's keys: sums of values and of shares. Shares are powers of 2
// less `base`.
template <int kExtent>
struct PartialRows {
  float sums[kExtent / 8][4] = {}, total[2] = {};
  float base[2] = {-HUGE_VALF, -HUGE_VALF}, largest[2] = {-HUGE_VALF, -HUGE_VALF};

  // Calls f(number, its place) for each number of row `half` that is not a base.
  template <typename F>
  __device__ void for_each_sum(int half, const F& f) {
    f(total[half], half);
#pragma unroll
    for (int j = 0; j < kExtent / 8; ++j) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) f(sums[j][i], kOthers + 4 * j + i);
    }
  }
  // Moves the base of row `half` to `next`, which is no smaller.
  __device__ void move_base(int half, float next) {
    const float factor = factor_of_base(base[half], next);
    for_each_sum(half, [&](float& x, int) { x *= factor; });
    base[half] = next;
  }
  // All teams call this: the first one's rows become those of all keys. A team's tiles in shared memory, of
  // `team_words` each from `tiles` on, have had their last reader in that team.
  template <int kTeams>
  __device__ void join(uint32_t* tiles, int team_words) {
    const int team = team_of_thread<kTeams>();
    const auto at = [&](int of_team, int place) -> float& {
      return reinterpret_cast<float*>(tiles + of_team * team_words)[place * kAttentionThreads + threadIdx.x];
    };
    if (team > 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        at(team, 2 + half) = base[half], at(team, 4 + half) = largest[half];
        for_each_sum(half, [&](float x, int place) { at(team, place) = x; });
      }
    }
    __syncthreads();
    if (team > 0) return;
#pragma unroll 1
    for (int other = 1; other < kTeams; ++other) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float its_base = at(other, 2 + half);
        move_base(half, fmaxf(base[half], its_base));
        const float factor = factor_of_base(its_base, base[half]);
        for_each_sum(half, [&](float& x, int place) { x += factor * at(other, place); });
        largest[half] = fmaxf(largest[half], at(other, 4 + half));
      }
    }
  }

 private:
  static constexpr int kOthers = 6;  // places before the sums: totals, bases, largest scores
};

template <typename Policy, int kExtent, int kTeams>
__global__ void __launch_bounds__(kAttentionThreads* kTeams, teams_at_once(kExtent) / kTeams)
    attend(const __grid_constant__ AttentionArguments args) {
  constexpr int kPairs = kHeadTile / 16, kTeamWords = 4 * kTileWords<kExtent>;
  static_assert(kTeamWords >= (6 + kExtent / 2) * kAttentionThreads || kTeams == 1);
  extern __shared__ uint4 shared[];
  uint32_t *const rows = reinterpret_cast<uint32_t*>(shared), *const tiles = rows + kTileWords<kExtent>;
  const auto stage_at = [&](int stage, int operand) {
    return tiles + team_of_thread<kTeams>() * kTeamWords + (2 * stage + operand) * kTileWords<kExtent>;
  };
  const AttentionSizes& sizes = args.sizes;
  const HeadBlock block(args, sizes.query_tiles(), true);
  const int queries = static_cast<int>(sizes.queries), keys = static_cast<int>(sizes.keys);
  const TileCopy<kExtent> k(block.matrix(args.k)), v(block.matrix(args.v));
  wait_for_earlier_work();
  if (team_of_thread<kTeams>() == 0) TileCopy<kExtent>(block.matrix(args.q)).queue(rows, block.first());
  __pipeline_commit();
  LeftRows<kExtent> left(rows, block.warp * 16);

  // The base follows the largest score of a row at a distance: a product with sums is rare, and shares stay
  // below 2^kSlack.
  constexpr float kSlack = 8;
  PartialRows<kExtent> found;
  const auto kind_of = [&](int tile) { return args.mask.kind(sizes, block.b, block.h, block.tile, tile); };
  __shared__ MaskTile held_kinds[TileKinds::kHeld];
  const TileKinds kinds(held_kinds, static_cast<int>(sizes.key_tiles()), kind_of);
  for_each_shown_tile<kTeams>(
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
          found.largest[half] = fmaxf(found.largest[half], largest[half]);
        }
        if (__any_sync(~0u, largest[0] > found.base[0] + kSlack || largest[1] > found.base[1] + kSlack)) {
#pragma unroll
          for (int half = 0; half < 2; ++half) found.move_base(half, fmaxf(found.base[half], largest[half]));
        }
        const auto shift_of = [&](int half) { return found.base[half] == -HUGE_VALF ? 0 : found.base[half]; };
        const float shift[2] = {shift_of(0), shift_of(1)};
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            found.total[i / 2] += scores[j][i] = power_of_2(fmaf(scores[j][i], factor, -shift[i / 2]));
        }
        add_product<Policy, kExtent, kPairs>(found.sums, scores, stage_at(stage, 1), 0);
      },
      [&] {
        __pipeline_wait_prior(1);
        __syncthreads();
        left.hold();
      });

  if constexpr (kTeams > 1) {
    found.template join<kTeams>(tiles, kTeamWords);
    if (team_of_thread<kTeams>() > 0) return;
  }
  const HeadMatrix y = block.matrix(args.y);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = combined_of_row(found.total[half], false);
    const bool is_zero = args.zero_nan_rows && !(sum > 0);
    const int query = block.row + half * 8;
    if (is_zero) {
#pragma unroll
      for (int j = 0; j < kExtent / 8; ++j) found.sums[j][2 * half] = found.sums[j][2 * half + 1] = 0;
    }
    store_head_row<Policy, kExtent>(y, query, found.sums, half, is_zero ? 0 : 1 / sum);
    if (block.t == 0 && query < queries) {
      float* const statistics = args.computed_statistics + 2 * (block.head * sizes.queries + query);
      const float largest = found.largest[half], base = found.base[half];
      statistics[0] = is_zero ? HUGE_VALF : largest;
      statistics[1] = is_zero ? 0 : (base == largest ? 0 : base - largest) + log2f(sum);
    }
  }
}

// The number of teams to a block: more than one while all of them run at once, and none lacks tiles of keys.
int choose_teams(const AttentionSizes& sizes, const CudaGpu& device) {
  const int64_t blocks = sizes.head_count() * sizes.query_tiles(), at_once = teams_at_once(sizes.extent);
  const int64_t limit = shared_limit_bytes(device) - TileKinds::kHeld;
  const auto fits = [&](int teams) {
    return teams <= kMaxTeams && teams <= at_once && teams <= sizes.key_tiles() &&
           blocks * teams <= at_once * device.multiprocessors() &&
           static_cast<int64_t>(bytes_of_head_tiles(sizes.extent, 1 + 4 * teams)) <= limit;
  };
  int teams = 1;
  while (fits(2 * teams)) teams *= 2;
  return teams;
}
}  // namespace

std::unique_ptr<Kernel> make_kernel(const Attention& op, const Request& request) {
  const AttentionCall attention(op, request);
  check_attention(request, attention.heads.count, request.outputs[1]);
  const int teams = choose_teams(attention.sizes, request.device);
  const auto with_teams = [&]<typename P, int e>(P, std::integral_constant<int, e>) -> AttentionKernel {
    if constexpr (teams_at_once(e) >= 4) {
      if (teams == 4) return attend<P, e, 4>;
    }
    return teams == 2 ? attend<P, e, 2> : attend<P, e, 1>;
  };
  const AttentionKernel kernel =
      choose_attention(request.inputs[0].dtype, attention.sizes.extent, request.device, with_teams);
  const auto queue = [op, attention, kernel, teams](const Call& call) {
    AttentionArguments args = attention.arguments(call, op.scale, op.softcap, op.zero_nan_rows);
    args.q = attention.head(call.inputs, 0, 0), args.k = attention.head(call.inputs, 0, 1);
    args.v = attention.head(call.inputs, 0, 2), args.y = attention.rows_of(call.outputs[0]);
    args.computed_statistics = call.out(1);
    const AttentionSizes& sizes = attention.sizes;
    launch_attention(kernel, sizes.head_count() * sizes.query_tiles(),
                     bytes_of_head_tiles(sizes.extent, 1 + 4 * teams), args, call.stream, teams);
  };
  return function_kernel(queue, 0, starts_early(request.device, {}));
}
}  // namespace headroom::cuda
