// The gradient of a convolution block with respect to its input, on the tensor cores: rows are input
// positions, columns input channels, the sum runs over taps and filters. Route and relu are applied on the
// way into shared memory.
#include <algorithm>

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
  int parts;     // warps that share a group of rows, each for some of the terms
  int out_rows;  // rows of outputs that can reach a tile
  Divisor width, units_of_image, out_w, outputs_of_tile, quads;
  Routed routed;
  const float* filter;
  float* dx;
};

// The outputs that reach a tile: the source of each, and the target of its gradient.
template <bool kPooled>
struct OutputAt {
  static constexpr int kUnit = kPooled ? 2 : 1;
  const Arguments& args;
  int image0, first_row, first_column;  // position in the convolution of the patch's corner
  int quad;

  struct Place {
    int image, row, column;
  };
  __device__ Place place_of(int output) const {
    Place place;
    int in_image;
    place.image = args.outputs_of_tile.divide(output, in_image);
    place.row = max(first_row, 0) / kUnit + args.out_w.divide(in_image, place.column);
    return place;
  }
  __device__ RoutedUnit operator()(int output) const {
    const ConvGeometry& g = args.g;
    const Place place = place_of(output);
    if (image0 + place.image >= g.batch || place.row >= g.out_h) return no_gradient();
    const int64_t from = (int64_t{image0 + place.image} * g.out_h + place.row) * g.out_w + place.column;
    return load_routed<kPooled>(args.routed, from * g.filters + quad * 4);
  }
  template <typename Policy>
  __device__ void store(uint32_t* patch, int pitch, int output, const RoutedUnit& routed) const {
    const Place place = place_of(output);
#pragma unroll
    for (int position = 0; position < kUnit * kUnit; ++position) {
      const int row = place.row * kUnit + position / kUnit - first_row;
      const int column = place.column * kUnit + position % kUnit - first_column;
      if (row < 0 || row >= args.tile.patch_h || column < 0 || column >= args.tile.patch_w) continue;
      uint32_t* const to =
          patch + ((place.image * args.tile.patch_h + row) * args.tile.patch_w + column) * pitch;
      store_words<Policy>(to + quad * (4 / Policy::kTermsOfWord), routed.at(position));
    }
  }
};

template <typename Policy, int kChannels, bool kPooled>
__global__ void __launch_bounds__(max_threads(kChannels))
    conv_input_grad(const __grid_constant__ Arguments args) {
  constexpr int kColumnTiles = kChannels / 8;
  constexpr int kWordsOfQuad = 4 / Policy::kTermsOfWord;
  const ConvGeometry& g = args.g;
  const ConvTile& tile = args.tile;

  extern __shared__ uint4 shared[];
  const int pitch = g.filters / Policy::kTermsOfWord +
                    kInputGradPadding;  // pitch of a pixel, and of a channel of the filter
  const int taps = g.kernel_h * g.kernel_w;
  uint32_t* const filter = reinterpret_cast<uint32_t*>(shared);  // (taps, kChannels, pitch)
  uint32_t* const patch = filter + taps * kChannels * pitch;
  const int patch_words = tile.images * tile.patch_h * tile.patch_w * pitch;
  const int first_channel = blockIdx.y * kChannels;
  const int lane = threadIdx.x % 32, g_of_lane = lane / 4, t_of_lane = lane % 4;

  const PixelLanes lanes(args.quads, g.filters / 4);
  const auto outputs_of = [&](int t) {
    const int image0 = tile.images == 1 ? t / tile.tiles_per_image : t * tile.images;
    const int row0 = tile.images == 1 ? t % tile.tiles_per_image * tile.rows : 0;
    return OutputAt<kPooled>{args, image0, row0 + g.pad_h - (g.kernel_h - 1), g.pad_w - (g.kernel_w - 1),
                             lanes.quad};
  };
  Stage<RoutedUnit> stage(lanes.first, lanes.step, tile.images * args.out_rows * g.out_w);
  {
    const auto load = [&](int row) {
      const int from = (row / kChannels * g.channels + first_channel + row % kChannels) * g.filters;
      return *reinterpret_cast<const float4*>(args.filter + from + lanes.quad * 4);
    };
    Stage<float4, kFiltersAhead> filter_stage(lanes.first, lanes.step, taps * kChannels);
    filter_stage.start(load);
    for (int i = threadIdx.x; i < patch_words / 4; i += blockDim.x) reinterpret_cast<uint4*>(patch)[i] = {};
    filter_stage.finish(load, [&](int row, float4 value) {
      store_words<Policy>(filter + row * pitch + lanes.quad * kWordsOfQuad, value);
    });
  }
  wait_for_earlier_work();
  stage.start(outputs_of(blockIdx.x));
  __syncthreads();

  const int units_of_image = tile.rows * g.width, units = tile.images * units_of_image;
  const int groups = (units + kRowsOfGroup - 1) / kRowsOfGroup;
  const int chunks_of_tap = g.filters / kTermsOfChunk, chunks = taps * chunks_of_tap;
  // A tap takes the gradient from as far above and to the left as it looks below and right: from the patch's
  // far corner backwards.
  const TapWalk walk{chunks_of_tap, g.kernel_w, -pitch, -tile.patch_w * pitch, kChannels * pitch, pitch};
  const int first_tap = ((g.kernel_h - 1) * tile.patch_w + g.kernel_w - 1) * pitch;
  const int warps = blockDim.x / 32, part = threadIdx.x / 32 % args.parts;
  for (int t = blockIdx.x; t < tile.tiles; t += gridDim.x) {
    const OutputAt<kPooled> outputs = outputs_of(t);
    const int image0 = outputs.image0, row0 = outputs.first_row - g.pad_h + (g.kernel_h - 1);
    // Positions without an incoming gradient stay zero in the patch; but halves of images end at different
    // rows, and sums of parts were stored here.
    if (t != blockIdx.x && (tile.tiles_per_image > 1 || args.parts > 1)) {
      for (int i = threadIdx.x; i < patch_words / 4; i += blockDim.x) reinterpret_cast<uint4*>(patch)[i] = {};
      __syncthreads();
    }
    stage.finish(outputs, [&](int output, const RoutedUnit& routed) {
      outputs.template store<Policy>(patch, pitch, output, routed);
    });
    __syncthreads();
    if (t + gridDim.x < tile.tiles) stage.start(outputs_of(t + gridDim.x));

    for (int group = threadIdx.x / 32 / args.parts; group < groups || args.parts > 1;
         group += warps / args.parts) {
      const int first_unit = group * kRowsOfGroup;
      const uint32_t* rows[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int unit = min(first_unit + i * 16 + lane % 16, units - 1);
        int in_image, column;
        const int image = args.units_of_image.divide(unit, in_image);
        const int row = args.width.divide(in_image, column);
        rows[i] = patch + ((image * tile.patch_h + row) * tile.patch_w + column) * pitch + first_tap +
                  lane / 16 * 4;
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
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int unit = first_unit + r * 8 + g_of_lane;
        int in_image, column;
        const int image = image0 + args.units_of_image.divide(unit, in_image);
        const int row = row0 + args.width.divide(in_image, column);
        if (unit >= units || image >= g.batch || row >= g.height) continue;
        const int64_t place = (int64_t{image} * g.height + row) * g.width + column;
        float* const to = args.dx + place * g.channels + first_channel + 2 * t_of_lane;
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) {
          *reinterpret_cast<float2*>(to + j * 8) = {sums[r / 2][j][r % 2 * 2], sums[r / 2][j][r % 2 * 2 + 1]};
        }
      }
      if (args.parts > 1) break;
    }
    __syncthreads();  // before the next patch replaces this one
  }
}

using ConvKernel = void (*)(Arguments);

}  // namespace

std::unique_ptr<Kernel> make_conv_input_grad(const ConvGeometry& g, const Request& request) {
  CudaGpu& device = request.device;
  if (device.compute_capability() < kMinCapabilityOfMma) return nullptr;
  const Math math = request.settings.math;
  const std::optional<TileChoice> choice = choose_gradients(g, math, share_of(request)).input;
  if (!choice) return nullptr;
  const int bytes = static_cast<int>(choice->cost.shared_bytes);
  const bool pooled = g.unit == 2;
  const auto kernel =
      choose_instance<ConvKernel>(math, choice->columns, pooled, device, [](auto instance) -> ConvKernel {
        using I = decltype(instance);
        return &conv_input_grad<typename I::Policy, I::kColumns, I::kPooled>;
      });
  const int threads = choice->warps * 32;
  const auto slices = static_cast<unsigned>(g.channels / choice->columns);
  const ConvTile& tile = choice->tile;
  const dim3 grid(blocks_for(tile.tiles, slices, bytes, choice->multiprocessors, device), slices);
  const int out_rows = std::min(g.out_h, tile.patch_h / g.unit + 1);
  const Arguments args{g,
                       tile,
                       choice->cost.parts,
                       out_rows,
                       Divisor(g.width),
                       Divisor(tile.rows * g.width),
                       Divisor(g.out_w),
                       Divisor(out_rows * g.out_w),
                       Divisor(g.filters / 4),
                       {},
                       nullptr,
                       nullptr};
  return function_kernel(
      [=](const Call& call) {
        Arguments a = args;
        a.routed = {call.in(0), pooled ? call.in<uint8_t>(1) : nullptr, pooled ? nullptr : call.in(1)};
        a.filter = call.in(2);
        a.dx = call.out();
        kernel<<<grid, threads, bytes, call.stream>>>(a);
        HR_CHECK(cudaGetLastError());
      },
      0, starts_early(device, {2}));
}

}  // namespace headroom::cuda
