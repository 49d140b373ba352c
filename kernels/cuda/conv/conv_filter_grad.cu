// The gradient of a convolution block with respect to filter and bias, on the tensor cores: rows are taps and
// channels, columns filters, the sum runs over the positions of all images. Each block of threads sums over
// some of the images; a second kernel adds up the parts in a fixed order.
//
// The gradient lies in shared memory with the row pitch of the image, zeros between its rows, so that one
// offset leads from a position to every tap's pixel.
#include <algorithm>

#include "base/bytes.h"
#include "device/cuda/check.h"
#include "kernels/cuda/conv/conv_accumulate.cuh"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/conv/conv_instance.cuh"
#include "kernels/cuda/conv/conv_route.cuh"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

struct Arguments {
  ConvGeometry g;
  ConvTile tile;
  int positions;  // per image in a tile, rounded up to kPositionsOfStep
  int pixels;     // per image in shared memory
  int out_rows;   // rows of outputs in a tile
  int warp_rows;  // pieces of kRowsOfWarp taps x channels, in all
  int parts;      // warps that share such a piece, each for some of the positions
  Divisor patch_pixels, patch_w, outputs_of_image, out_w, x_quads, dy_quads;
  const float* x;
  Routed routed;
  float* sums;  // (blocks along x, block_elements): taps, channels, filters, then the bias
  int64_t block_elements;
};

template <int kFilters, bool kPooled>
struct OutputAt {
  static constexpr int kUnit = kPooled ? 2 : 1;
  static constexpr int kPitch = kFilters + kFilterGradPadding;
  const Arguments& args;
  int image0, out_row0, first_filter;  // for the lane's four

  __device__ RoutedUnit operator()(int output) const {
    const ConvGeometry& g = args.g;
    int in_image, column;
    const int image = image0 + args.outputs_of_image.divide(output, in_image);
    const int row = out_row0 + args.out_w.divide(in_image, column);
    if (image >= g.batch || row >= g.out_h) return no_gradient();
    return load_routed<kPooled>(
        args.routed, ((int64_t{image} * g.out_h + row) * g.out_w + column) * g.filters + first_filter);
  }
  template <typename Policy>
  __device__ void store(uint32_t* gradient, int output, const RoutedUnit& routed) const {
    int in_image, column;
    const int image = args.outputs_of_image.divide(output, in_image);
    const int row = args.out_w.divide(in_image, column);
#pragma unroll
    for (int position = 0; position < kUnit * kUnit; ++position) {
      const int at = (row * kUnit + position / kUnit) * args.tile.patch_w + column * kUnit + position % kUnit;
      store_terms<Policy>(gradient + (image * args.positions + at) * kPitch + first_filter % kFilters,
                          routed.at(position));
    }
  }
};

template <typename Policy, int kFilters, bool kPooled>
__global__ void __launch_bounds__(kMaxFilterGradWarps * 32)
    conv_filter_grad(const __grid_constant__ Arguments args) {
  constexpr int kColumnTiles = kFilters / 8;
  constexpr int kPitch = kFilters + kFilterGradPadding;
  constexpr int kQuads = kFilters / 4;
  constexpr int kPositionsOfMma = kWordsOfStep * Policy::kTermsOfWord;
  const ConvGeometry& g = args.g;
  const ConvTile& tile = args.tile;
  const int threads = blockDim.x;

  extern __shared__ uint4 shared[];
  const int x_pitch = g.channels + kFilterGradPadding;
  uint32_t* const patch = reinterpret_cast<uint32_t*>(shared);
  uint32_t* const gradient = patch + tile.images * args.pixels * x_pitch;
  const int first_filter = blockIdx.z * kFilters;
  const int g_of_lane = threadIdx.x % 32 / 4, t_of_lane = threadIdx.x % 4;

  const int warp = threadIdx.x / 32, part = warp % args.parts;
  const int piece = warp / args.parts;
  const int warp_row = blockIdx.y * (threads / 32 / args.parts) + piece;
  const int rows = g.kernel_h * g.kernel_w * g.channels;  // a multiple of 16
  const bool busy = warp_row < args.warp_rows;
  int offsets[2];  // offsets of the lane's first element in both tiles
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(warp_row * kRowsOfWarp + i * 16, rows - 16);
    const int tap = row / g.channels;
    offsets[i] =
        (tap / g.kernel_w * tile.patch_w + tap % g.kernel_w) * x_pitch + row % g.channels + g_of_lane;
  }

  const PixelLanes pixel_lanes(args.x_quads, g.channels / 4), output_lanes(args.dy_quads, kQuads);
  const auto image_of = [&](int t) { return tile.images == 1 ? t / tile.tiles_per_image : t * tile.images; };
  const auto row_of = [&](int t) { return tile.images == 1 ? t % tile.tiles_per_image * tile.rows : 0; };
  const auto pixels_of = [&](int t) {
    return PixelAt<Arguments>{args, image_of(t), row_of(t), pixel_lanes.quad};
  };
  const auto outputs_of = [&](int t) {
    using Outputs = OutputAt<kFilters, kPooled>;
    return Outputs{args, image_of(t), row_of(t) / Outputs::kUnit, first_filter + output_lanes.quad * 4};
  };
  Stage<float4> x_stage(pixel_lanes.first, pixel_lanes.step, tile.images * args.pixels);
  Stage<RoutedUnit> dy_stage(output_lanes.first, output_lanes.step, tile.images * args.out_rows * g.out_w);
  for (int i = threadIdx.x; i < tile.images * args.positions * kPitch / 4; i += threads) {
    reinterpret_cast<uint4*>(gradient)[i] = {};  // between rows it stays zero
  }
  x_stage.start(pixels_of(blockIdx.x));
  wait_for_earlier_work();
  dy_stage.start(outputs_of(blockIdx.x));
  __syncthreads();

  float sums[2][kColumnTiles][4] = {};
  float4 bias = {};
  for (int t = blockIdx.x; t < tile.tiles; t += gridDim.x) {
    x_stage.finish(pixels_of(t), [&](int pixel, float4 value) {
      store_terms<Policy>(patch + pixel * x_pitch + pixel_lanes.quad * 4, value);
    });
    const auto outputs = outputs_of(t);
    dy_stage.finish(outputs, [&](int output, const RoutedUnit& routed) {
      outputs.template store<Policy>(gradient, output, routed);
      const float4 sum = routed.all();
      bias = {bias.x + sum.x, bias.y + sum.y, bias.z + sum.z, bias.w + sum.w};
    });
    __syncthreads();
    if (t + gridDim.x < tile.tiles) {
      x_stage.start(pixels_of(t + gridDim.x));
      dy_stage.start(outputs_of(t + gridDim.x));
    }
    if (busy) {
      for (int image = 0; image < tile.images; ++image) {
        const uint32_t* const pixels = patch + image * args.pixels * x_pitch;
        const uint32_t* const columns = gradient + image * args.positions * kPitch + g_of_lane;
#pragma unroll 1
        for (int first = part * kPositionsOfStep; first < args.positions;
             first += args.parts * kPositionsOfStep) {
#pragma unroll
          for (int step = 0; step < kPositionsOfStep; step += kPositionsOfMma) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const uint32_t* const from = pixels + (first + step) * x_pitch + offsets[i];
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                a[i][e] = word_at<Policy>(from + e % 2 * 8, t_of_lane + e / 2 * 4, x_pitch);
              }
            }
#pragma unroll
            for (int j = 0; j < kColumnTiles; ++j) {
              const uint32_t* const from = columns + (first + step) * kPitch + j * 8;
              const uint32_t b[2] = {word_at<Policy>(from, t_of_lane, kPitch),
                                     word_at<Policy>(from, t_of_lane + 4, kPitch)};
#pragma unroll
              for (int i = 0; i < 2; ++i) Policy::multiply_add(sums[i][j], a[i], b);
            }
          }
        }
      }
    }
    __syncthreads();  // before the next tile replaces this one
  }
  if (args.parts > 1) {
    add_parts(sums, piece, threads / 32 / args.parts, part, args.parts, patch);
    __syncthreads();
  }

  float* const to_block = args.sums + blockIdx.x * args.block_elements;
  if (busy && part == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = warp_row * kRowsOfWarp + i * 16;
      if (first >= rows) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const to =
            to_block + int64_t{first + half * 8 + g_of_lane} * g.filters + first_filter + 2 * t_of_lane;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          *reinterpret_cast<float2*>(to + j * 8) = {sums[i][j][2 * half], sums[i][j][2 * half + 1]};
        }
      }
    }
  }
  if (blockIdx.y != 0) return;
  float4* const shares = reinterpret_cast<float4*>(shared);  // (threads / kQuads, kQuads)
  shares[threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.x < kQuads) {
    for (int i = threadIdx.x + kQuads; i < threads; i += kQuads) {
      bias = {bias.x + shares[i].x, bias.y + shares[i].y, bias.z + shares[i].z, bias.w + shares[i].w};
    }
    reinterpret_cast<float4*>(to_block + int64_t{rows} * g.filters + first_filter)[threadIdx.x] = bias;
  }
}

using ConvKernel = void (*)(Arguments);

constexpr int kSumThreads = 256;

// kSumThreads / kShares sums to a block, side by side in memory; kShares threads share the parts of one sum.
template <int kShares>
__global__ void __launch_bounds__(kSumThreads)
    sum_parts_kernel(const float* parts, int count, int64_t n, float* first, int64_t n_first, float* second) {
  constexpr int kColumns = kSumThreads / kShares;
  __shared__ float shares[kShares][kColumns];
  const int column = threadIdx.x % kColumns, share = threadIdx.x / kColumns;
  const int64_t i = int64_t{blockIdx.x} * kColumns + column;
  float sum = 0;
  wait_for_earlier_work();
  if (i < n) {
#pragma unroll 8
    for (int part = share; part < count; part += kShares) sum += parts[part * n + i];
  }
  shares[share][column] = sum;
  __syncthreads();
  if (share != 0 || i >= n) return;
#pragma unroll
  for (int other = 1; other < kShares; ++other) sum += shares[other][column];
  (i < n_first ? first[i] : second[i - n_first]) = sum;
}

}  // namespace

void sum_parts(const CudaGpu& device, const float* parts, int count, int64_t n, float* first, int64_t n_first,
               float* second, cudaStream_t stream) {
  const auto queue = [&](auto kernel, int shares) {
    const int columns = kSumThreads / shares;
    launch_early(device, kernel, static_cast<unsigned>((n + columns - 1) / columns), kSumThreads, stream,
                 parts, count, n, first, n_first, second);
  };
  // All loads of a thread should be on their way together, and few sums still occupy many multiprocessors.
  if (count > 64) {
    queue(sum_parts_kernel<32>, 32);
  } else {
    queue(sum_parts_kernel<8>, 8);
  }
}

std::unique_ptr<Kernel> make_conv_filter_grad(const ConvGeometry& g, const Request& request) {
  CudaGpu& device = request.device;
  if (device.compute_capability() < kMinCapabilityOfMma) return nullptr;
  const Math math = request.settings.math;
  const std::optional<FilterGradTile> cut = choose_gradients(g, math, share_of(request)).filter;
  if (!cut) return nullptr;
  const TileChoice& choice = cut->choice;
  const ConvTile& tile = choice.tile;
  const int bytes = static_cast<int>(choice.cost.shared_bytes), threads = choice.warps * 32;
  const bool pooled = g.unit == 2;
  const auto kernel =
      choose_instance<ConvKernel>(math, cut->filters, pooled, device, [](auto instance) -> ConvKernel {
        using I = decltype(instance);
        return &conv_filter_grad<typename I::Policy, I::kColumns, I::kPooled>;
      });
  const int filter_slices = g.filters / cut->filters;
  const dim3 grid(blocks_for(tile.tiles, cut->slices * filter_slices, bytes, choice.multiprocessors, device),
                  static_cast<unsigned>(cut->slices), static_cast<unsigned>(filter_slices));
  const int64_t elements = int64_t{g.kernel_h} * g.kernel_w * g.channels * g.filters + g.filters;
  const int64_t workspace = round_up(grid.x * elements * 4, 256);
  if (workspace > request.settings.workspace_limit_bytes) return nullptr;
  const int out_rows = (tile.rows + g.unit - 1) / g.unit;
  const Arguments args{g,
                       tile,
                       cut->positions,
                       cut->pixels,
                       out_rows,
                       cut->warp_rows,
                       choice.cost.parts,
                       Divisor(cut->pixels),
                       Divisor(tile.patch_w),
                       Divisor(out_rows * g.out_w),
                       Divisor(g.out_w),
                       Divisor(g.channels / 4),
                       Divisor(cut->filters / 4),
                       nullptr,
                       {},
                       nullptr,
                       elements};
  return function_kernel(
      [=, &device](const Call& call) {
        Arguments a = args;
        a.x = call.in(0);
        a.routed = {call.in(1), pooled ? call.in<uint8_t>(2) : nullptr, pooled ? nullptr : call.in(2)};
        a.sums = call.scratch<float>();
        kernel<<<grid, threads, bytes, call.stream>>>(a);
        HR_CHECK(cudaGetLastError());
        sum_parts(device, a.sums, static_cast<int>(grid.x), elements, call.out(0), elements - g.filters,
                  call.out(1), call.stream);
      },
      workspace, starts_early(device, {0}));
}

}  // namespace headroom::cuda
