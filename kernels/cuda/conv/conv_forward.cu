// relu(conv(x, filter) + bias), max-pooled if asked, as products of tiles on the tensor cores (an implicit
// GEMM: rows are output positions, columns filters, the sum runs over taps and channels). The four positions
// of a pooling window belong to one thread, so that pooling never leaves the registers, and positions that no
// window covers are not computed.
#include <algorithm>

#include "device/cuda/check.h"
#include "kernels/cuda/conv/conv_accumulate.cuh"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/conv/conv_instance.cuh"
#include "kernels/cuda/conv/conv_stage.cuh"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

struct Arguments {
  ConvGeometry g;
  ConvTile tile;
  int parts;  // warps that share a group of rows, each for some of the terms
  Divisor patch_w, patch_pixels, out_w, units_of_image, filter_words, quads;
  const float *x, *filter, *bias;
  float* y;
  uint8_t* index;  // may be null
};

// Loads the filter's slice as (kFilters, pitch) words: the terms of a filter are adjacent. Neighboring
// threads load neighboring terms, so that they store to different banks.
template <typename Policy, int kFilters>
__device__ void load_filter(const Arguments& args, uint32_t* filter, int pitch, int first_filter) {
  constexpr int kTerms = Policy::kTermsOfWord;
  const ConvGeometry& g = args.g;
  const int words = g.kernel_h * g.kernel_w * g.channels / kTerms;
  struct Piece {
    float4 v[kTerms];
  };
  const auto load = [&](int i) {
    Piece piece;
    int word;
    const int quad = args.filter_words.divide(i, word);
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      piece.v[t] = *reinterpret_cast<const float4*>(args.filter + (word * kTerms + t) * g.filters +
                                                    first_filter + quad * 4);
    }
    return piece;
  };
  Stage<Piece, kFiltersAhead / kTerms> stage(threadIdx.x, blockDim.x, words * (kFilters / 4));
  stage.start(load);
  stage.finish(load, [&](int i, const Piece& piece) {
    int word;
    const int quad = args.filter_words.divide(i, word);
    uint32_t* const to = filter + quad * 4 * pitch + word;
    const float4 x = piece.v[0], y = piece.v[kTerms - 1];
    to[0] = Policy::word(x.x, y.x);
    to[pitch] = Policy::word(x.y, y.y);
    to[2 * pitch] = Policy::word(x.z, y.z);
    to[3 * pitch] = Policy::word(x.w, y.w);
  });
}

// Bias, relu and, over the four sums of a window, the maximum with its position.
__device__ void finish_window(const float (&values)[4], float bias, float& best, uint8_t& at) {
  best = values[0] + bias;
  at = 0;
#pragma unroll
  for (int position = 1; position < 4; ++position) {
    const float value = values[position] + bias;
    if (value > best || value != value) {  // NaN wins and stays
      best = value;
      at = static_cast<uint8_t>(position);
    }
  }
  if (best <= 0) {
    best = 0;
    at = kNoGradient;
  }
}

template <typename Policy, int kFilters, bool kPooled>
__global__ void __launch_bounds__(max_threads(kFilters))
    conv_forward(const __grid_constant__ Arguments args) {
  constexpr int kUnit = kPooled ? 2 : 1;
  constexpr int kUnitsOfGroup = kRowsOfGroup / (kUnit * kUnit);
  constexpr int kColumnTiles = kFilters / 8;
  const ConvGeometry& g = args.g;
  const ConvTile& tile = args.tile;

  extern __shared__ uint4 shared[];
  const int pitch = g.channels / Policy::kTermsOfWord + kForwardPadding;  // pitch of a pixel
  const int terms = g.kernel_h * g.kernel_w * g.channels;
  const int filter_pitch = terms / Policy::kTermsOfWord + kForwardPadding;
  uint32_t* const filter = reinterpret_cast<uint32_t*>(shared);  // (kFilters, filter_pitch)
  uint32_t* const patch = filter + kFilters * filter_pitch;
  const int first_filter = blockIdx.y * kFilters;
  const int lane = threadIdx.x % 32, g_of_lane = lane / 4, t_of_lane = lane % 4;
  float2 bias[kColumnTiles];
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    bias[j] = *reinterpret_cast<const float2*>(args.bias + first_filter + 2 * t_of_lane + j * 8);
  }

  const PixelLanes lanes(args.quads, g.channels / 4);
  Stage<float4> stage(lanes.first, lanes.step, tile.images * tile.patch_h * tile.patch_w);
  const auto pixels_of = [&](int t) {
    const int image0 = tile.images == 1 ? t / tile.tiles_per_image : t * tile.images;
    const int out_row0 = tile.images == 1 ? t % tile.tiles_per_image * tile.rows : 0;
    return PixelAt<Arguments>{args, image0, out_row0 * kUnit, lanes.quad};
  };
  load_filter<Policy, kFilters>(args, filter, filter_pitch, first_filter);
  wait_for_earlier_work();
  stage.start(pixels_of(blockIdx.x));

  const int units_of_image = tile.rows * g.out_w, units = tile.images * units_of_image;
  const int groups = (units + kUnitsOfGroup - 1) / kUnitsOfGroup;
  const int chunks_of_tap = g.channels / kTermsOfChunk, chunks = terms / kTermsOfChunk;
  constexpr int kTermsOfWord = Policy::kTermsOfWord;
  const TapWalk walk{chunks_of_tap, g.kernel_w, pitch, tile.patch_w * pitch, g.channels / kTermsOfWord,
                     filter_pitch};
  const int warps = blockDim.x / 32, part = threadIdx.x / 32 % args.parts;
  for (int t = blockIdx.x; t < tile.tiles; t += gridDim.x) {
    const PixelAt<Arguments> pixels = pixels_of(t);
    const int image0 = pixels.image0, out_row0 = pixels.row0 / kUnit;
    stage.finish(pixels, [&](int pixel, float4 value) {
      store_words<Policy>(patch + pixel * pitch + lanes.quad * (4 / Policy::kTermsOfWord), value);
    });
    __syncthreads();
    if (t + gridDim.x < tile.tiles) stage.start(pixels_of(t + gridDim.x));

    for (int group = threadIdx.x / 32 / args.parts; group < groups || args.parts > 1;
         group += warps / args.parts) {
      const int first_unit = group * kUnitsOfGroup;
      // Row g of half h of 16-row tile i is position 2i + h of window g under a pool, otherwise unit 16i + 8h
      // + g.
      const uint32_t* rows[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int half = lane / 8 % 2;
        const int unit = min(first_unit + (kPooled ? 0 : i * 16 + half * 8) + lane % 8, units - 1);
        int in_image, column;
        const int image = args.units_of_image.divide(unit, in_image);
        const int row = args.out_w.divide(in_image, column) * kUnit + (kPooled ? i : 0);
        column = column * kUnit + (kPooled ? half : 0);
        rows[i] = patch + ((image * tile.patch_h + row) * tile.patch_w + column) * pitch + lane / 16 * 4;
      }
      float sums[2][kColumnTiles][4] = {};
      if (group < groups) {
        accumulate<Policy>(sums, rows, filter, part * chunks / args.parts, (part + 1) * chunks / args.parts,
                           walk);
      }
      if (args.parts > 1) {
        add_parts(sums, group, groups, part, args.parts, patch);
        if (part > 0 || group >= groups) break;
      }

      // Returns the position of a unit's results; negative if it is outside.
      const auto place_of = [&](int unit) -> int64_t {
        int in_image, column;
        const int image = image0 + args.units_of_image.divide(unit, in_image);
        const int row = out_row0 + args.out_w.divide(in_image, column);
        if (unit >= units || image >= g.batch || row >= g.out_h) return -1;
        return ((int64_t{image} * g.out_h + row) * g.out_w + column) * g.filters;
      };
      const int k0 = first_filter + 2 * t_of_lane;
      if constexpr (kPooled) {
        const int64_t place = place_of(first_unit + g_of_lane);
        if (place >= 0) {
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            float best[2];
            uint8_t at[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const float values[4] = {sums[0][j][e], sums[0][j][2 + e], sums[1][j][e], sums[1][j][2 + e]};
              finish_window(values, e == 0 ? bias[j].x : bias[j].y, best[e], at[e]);
            }
            *reinterpret_cast<float2*>(args.y + place + k0 + j * 8) = {best[0], best[1]};
            if (args.index) *reinterpret_cast<uchar2*>(args.index + place + k0 + j * 8) = {at[0], at[1]};
          }
        }
      } else {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int64_t place = place_of(first_unit + r * 8 + g_of_lane);
          if (place < 0) continue;
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            float value[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              value[e] = sums[r / 2][j][r % 2 * 2 + e] + (e == 0 ? bias[j].x : bias[j].y);
              if (value[e] <= 0) value[e] = 0;
            }
            *reinterpret_cast<float2*>(args.y + place + k0 + j * 8) = {value[0], value[1]};
          }
        }
      }
      if (args.parts > 1) break;
    }
    __syncthreads();  // before the next patch replaces this one
  }
}

using ConvKernel = void (*)(Arguments);

}  // namespace

std::unique_ptr<Kernel> make_conv_forward(const ConvGeometry& g, const Request& request) {
  CudaGpu& device = request.device;
  if (device.compute_capability() < kMinCapabilityOfMma) return nullptr;
  const Math math = request.settings.math;
  const std::optional<TileChoice> choice = choose_forward(g, math, share_of(request));
  if (!choice) return nullptr;
  const int bytes = static_cast<int>(choice->cost.shared_bytes);
  const bool pooled = g.unit == 2;
  const auto kernel =
      choose_instance<ConvKernel>(math, choice->columns, pooled, device, [](auto instance) -> ConvKernel {
        using I = decltype(instance);
        return &conv_forward<typename I::Policy, I::kColumns, I::kPooled>;
      });
  const int threads = choice->warps * 32;
  const auto slices = static_cast<unsigned>(g.filters / choice->columns);
  const ConvTile& tile = choice->tile;
  const dim3 grid(blocks_for(tile.tiles, slices, bytes, choice->multiprocessors, device), slices);
  Arguments args{g,
                 tile,
                 choice->cost.parts,
                 Divisor(tile.patch_w),
                 Divisor(tile.patch_w * tile.patch_h),
                 Divisor(g.out_w),
                 Divisor(tile.rows * g.out_w),
                 Divisor(g.kernel_h * g.kernel_w * g.channels / terms_of_word(math)),
                 Divisor(g.channels / 4),
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr};
  return function_kernel(
      [=](const Call& call) {
        Arguments a = args;
        a.x = call.in(0);
        a.filter = call.in(1);
        a.bias = call.in(2);
        a.y = call.out();
        a.index = pooled ? call.out<uint8_t>(1) : nullptr;
        kernel<<<grid, threads, bytes, call.stream>>>(a);
        HR_CHECK(cudaGetLastError());
      },
      0, starts_early(device, {1, 2}));
}

}  // namespace headroom::cuda
