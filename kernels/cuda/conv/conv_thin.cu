// Convolution blocks for images of few channels, as in a first layer: too few for tensor cores, so plain
// multiply-adds in f32. The filter gradient visits only the positions that a pool's index names.
#include <algorithm>

#include "base/bytes.h"
#include "device/cuda/check.h"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/conv/conv_route.cuh"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxChannels = 4;  // channels of the filter gradient
constexpr int kTermsOfSlice =
    9;  // taps x channels that a filter gradient sums at once: a 3 x 3 window of one channel

struct Arguments {
  ConvGeometry g;
  ConvTile tile;
  const float *x, *filter, *bias;
  Routed routed;
  float* y;
  uint8_t* index;
  float* parts;
  int64_t part_elements;
  Divisor out_w, quads;
};

__device__ void load_patch(const Arguments& args, float* patch, int image, int row0) {
  const ConvGeometry& g = args.g;
  const int row_elements = args.tile.patch_w * g.channels;
  for (int i = threadIdx.x; i < args.tile.patch_h * row_elements; i += kThreads) {
    const int row = row0 + i / row_elements - g.pad_h;
    const int element = i % row_elements - g.pad_w * g.channels;
    const bool inside = row >= 0 && row < g.height && element >= 0 && element < g.width * g.channels;
    patch[i] = inside ? args.x[(int64_t{image} * g.height + row) * g.width * g.channels + element] : 0.0f;
  }
}

// Each thread computes 4 neighboring filters of one unit and keeps the unit's pixels in registers.
template <int kKernel, int kChannels, bool kPooled>
__global__ void __launch_bounds__(kThreads, 3) thin_forward(const __grid_constant__ Arguments args) {
  constexpr int kUnit = kPooled ? 2 : 1, kPositions = kUnit * kUnit;
  constexpr int kRows = kKernel + kUnit - 1, kRowElements = kRows * kChannels;
  constexpr int kTerms = kKernel * kKernel * kChannels;
  const ConvGeometry& g = args.g;
  const ConvTile& tile = args.tile;
  extern __shared__ float4 shared[];
  const int quads = g.filters / 4;
  float4* const filter = shared;  // (kTerms, quads)
  float* const patch = reinterpret_cast<float*>(shared + kTerms * quads);
  wait_for_earlier_work();
  for (int i = threadIdx.x; i < kTerms * quads; i += kThreads) {
    filter[i] = reinterpret_cast<const float4*>(args.filter)[i];
  }
  const PixelLanes lanes(args.quads, quads);
  const float4 bias4 = *reinterpret_cast<const float4*>(args.bias + lanes.quad * 4);
  const float bias[4] = {bias4.x, bias4.y, bias4.z, bias4.w};

  const int row_pitch = tile.patch_w * kChannels;
  for (int t = blockIdx.x; t < tile.tiles; t += gridDim.x) {
    const int image = t / tile.tiles_per_image, out_row0 = t % tile.tiles_per_image * tile.rows;
    load_patch(args, patch, image, out_row0 * kUnit);
    __syncthreads();
    const int units = min(tile.rows, g.out_h - out_row0) * g.out_w;
    for (int unit = lanes.first; unit < units; unit += lanes.step) {
      int column;
      const int row = args.out_w.divide(unit, column);
      const float* const corner = patch + row * kUnit * row_pitch + column * kUnit * kChannels;
      float pixels[kRows][kRowElements];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int e = 0; e < kRowElements; ++e) pixels[r][e] = corner[r * row_pitch + e];
      }
      float sums[kPositions][4] = {};
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        const int r = term / (kKernel * kChannels), e = term % (kKernel * kChannels);
        const float4 w = filter[term * quads + lanes.quad];
        const float weights[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int p = 0; p < kPositions; ++p) {
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[p][k] += pixels[r + p / 2][e + p % 2 * kChannels] * weights[k];
        }
      }
      float best[4];
      uint8_t at[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        best[k] = sums[0][k] + bias[k];
        at[k] = 0;
#pragma unroll
        for (int p = 1; p < kPositions; ++p) {
          const float value = sums[p][k] + bias[k];
          if (value > best[k] || value != value) {  // NaN wins and stays
            best[k] = value;
            at[k] = static_cast<uint8_t>(p);
          }
        }
        if (best[k] <= 0) {
          best[k] = 0;
          at[k] = kNoGradient;
        }
      }
      const int64_t output = (int64_t{image} * g.out_h + out_row0 + row) * g.out_w + column;
      const int64_t to = output * g.filters + lanes.quad * 4;
      *reinterpret_cast<float4*>(args.y + to) = {best[0], best[1], best[2], best[3]};
      if (args.index) *reinterpret_cast<uchar4*>(args.index + to) = {at[0], at[1], at[2], at[3]};
    }
    __syncthreads();  // before the next patch replaces this one
  }
}

// A warp takes 32 filters of one unit at a time, one filter per lane; blockIdx.y names filters and chunk of
// terms.
template <bool kPooled>
__global__ void __launch_bounds__(kThreads) thin_filter_grad(const __grid_constant__ Arguments args) {
  constexpr int kUnit = kPooled ? 2 : 1;
  constexpr int kUnroll = 8;
  const ConvGeometry& g = args.g;
  const ConvTile& tile = args.tile;
  extern __shared__ float4 shared[];
  float* const patch = reinterpret_cast<float*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = kThreads / 32;
  const int filter_slices = (g.filters + 31) / 32, terms = g.kernel_h * g.kernel_w * g.channels;
  const int k = blockIdx.y % filter_slices * 32 + lane,
            first_term = blockIdx.y / filter_slices * kTermsOfSlice;
  const int row_pitch = tile.patch_w * g.channels;

  int offsets[kTermsOfSlice];
#pragma unroll
  for (int i = 0; i < kTermsOfSlice; ++i) {
    const int term = min(first_term + i, terms - 1), row_terms = g.kernel_w * g.channels;
    offsets[i] = term / row_terms * row_pitch + term % row_terms;
  }
  float sums[kTermsOfSlice] = {};
  float bias = 0;
  for (int t = blockIdx.x; t < tile.tiles; t += gridDim.x) {
    const int image = t / tile.tiles_per_image, out_row0 = t % tile.tiles_per_image * tile.rows;
    load_patch(args, patch, image, out_row0 * kUnit);
    if (t == static_cast<int>(blockIdx.x)) wait_for_earlier_work();
    const int units = min(tile.rows, g.out_h - out_row0) * g.out_w;
    const int64_t base = (int64_t{image} * g.out_h + out_row0) * g.out_w;
    float dy[kUnroll];
    int route[kUnroll];
    const auto load = [&](int first) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int unit = first + u * warps;
        route[u] = kNoGradient;
        if (unit >= units || k >= g.filters) continue;
        const int64_t at = (base + unit) * g.filters + k;
        dy[u] = args.routed.dy[at];
        route[u] = kPooled ? args.routed.index[at] : args.routed.y[at] > 0 ? 0 : kNoGradient;
      }
    };
    load(warp);
    __syncthreads();
    for (int first = warp; first < units; first += warps * kUnroll) {
      int corner[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        corner[u] = 0;
        if (route[u] == kNoGradient) {
          dy[u] = 0;
          continue;
        }
        int column;
        const int row = args.out_w.divide(first + u * warps, column);
        corner[u] =
            (row * kUnit + route[u] / kUnit) * row_pitch + (column * kUnit + route[u] % kUnit) * g.channels;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        bias += dy[u];
#pragma unroll
        for (int i = 0; i < kTermsOfSlice; ++i) sums[i] += dy[u] * patch[corner[u] + offsets[i]];
      }
      if (first + warps * kUnroll < units) load(first + warps * kUnroll);
    }
    __syncthreads();  // before the next patch replaces this one
  }

  // (warps, kTermsOfSlice + 1, 32): the warps' sums, added up in order.
  float* const shares = patch;
#pragma unroll
  for (int i = 0; i < kTermsOfSlice; ++i) shares[(warp * (kTermsOfSlice + 1) + i) * 32 + lane] = sums[i];
  shares[(warp * (kTermsOfSlice + 1) + kTermsOfSlice) * 32 + lane] = bias;
  __syncthreads();
  float* const part = args.parts + blockIdx.x * args.part_elements;
  for (int i = threadIdx.x; i < (kTermsOfSlice + 1) * 32; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) sum += shares[w * (kTermsOfSlice + 1) * 32 + i];
    const int filter = blockIdx.y % filter_slices * 32 + i % 32, term = first_term + i / 32;
    if (filter >= g.filters) continue;
    if (i / 32 == kTermsOfSlice) {
      if (first_term == 0) part[terms * g.filters + filter] = sum;
    } else if (term < terms) {
      part[term * g.filters + filter] = sum;
    }
  }
}

// Tiles of one image each, small enough to keep all multiprocessors busy.
ConvTile cut(const ConvGeometry& g, int multiprocessors) {
  int rows = g.out_h;
  while (rows > 1 && int64_t{g.batch} * ((g.out_h + rows - 1) / rows) < multiprocessors * 3 / 2) {
    rows = (rows + 1) / 2;
  }
  ConvTile tile = ConvTile::cut(g.batch, g.out_h, 1, rows);
  tile.patch_h = tile.rows * g.unit - 1 + g.kernel_h;
  tile.patch_w = g.width + 2 * g.pad_w;
  return tile;
}

int64_t patch_bytes(const ConvGeometry& g, const ConvTile& tile) {
  return round_up(int64_t{tile.patch_h} * tile.patch_w * g.channels * 4, 16);
}

constexpr int64_t kSharedBytes = 48 << 10;  // the shared memory of a block without a request for more

// Returns the kernel for that window and number of channels; null if there is none.
void (*find_forward(const ConvGeometry& g))(Arguments) {
  const bool pooled = g.unit == 2;
  if (g.kernel_h != g.kernel_w) return nullptr;
  if (g.kernel_h == 3 && g.channels == 1)
    return pooled ? thin_forward<3, 1, true> : thin_forward<3, 1, false>;
  if (g.kernel_h == 3 && g.channels == 3)
    return pooled ? thin_forward<3, 3, true> : thin_forward<3, 3, false>;
  if (g.kernel_h == 5 && g.channels == 1)
    return pooled ? thin_forward<5, 1, true> : thin_forward<5, 1, false>;
  if (g.kernel_h == 5 && g.channels == 3)
    return pooled ? thin_forward<5, 3, true> : thin_forward<5, 3, false>;
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_thin_conv_forward(const ConvGeometry& g, const Request& request) {
  const auto forward = find_forward(g);
  if (forward == nullptr || g.filters % 4 != 0 || g.filters / 4 > kThreads) return nullptr;
  const int multiprocessors = request.device.multiprocessors();
  const ConvTile tile = cut(g, multiprocessors);
  const int64_t bytes = patch_bytes(g, tile) + int64_t{g.kernel_h} * g.kernel_w * g.channels * g.filters * 4;
  if (bytes > kSharedBytes) return nullptr;
  const unsigned blocks = blocks_for(tile.tiles, 1, bytes, multiprocessors, request.device);
  return function_kernel(
      [=](const Call& call) {
        uint8_t* const index = g.unit == 2 ? call.out<uint8_t>(1) : nullptr;
        const Arguments args{g,          tile, call.in(0),       call.in(1),
                             call.in(2), {},   call.out(),       index,
                             nullptr,    0,    Divisor(g.out_w), Divisor(g.filters / 4)};
        forward<<<blocks, kThreads, bytes, call.stream>>>(args);
        HR_CHECK(cudaGetLastError());
      },
      0, starts_early(request.device, {}));
}

std::unique_ptr<Kernel> make_thin_conv_filter_grad(const ConvGeometry& g, const Request& request) {
  if (g.channels > kMaxChannels) return nullptr;
  const int multiprocessors = request.device.multiprocessors();
  const ConvTile tile = cut(g, multiprocessors);
  const int terms = g.kernel_h * g.kernel_w * g.channels;
  const int64_t shares = int64_t{kThreads / 32} * (kTermsOfSlice + 1) * 32 * 4;
  const int64_t bytes = std::max(patch_bytes(g, tile), shares);
  if (bytes > kSharedBytes) return nullptr;
  const int slices = (g.filters + 31) / 32 * ((terms + kTermsOfSlice - 1) / kTermsOfSlice);
  const dim3 grid(blocks_for(tile.tiles, slices, bytes, multiprocessors, request.device),
                  static_cast<unsigned>(slices));
  const int64_t elements = int64_t{terms} * g.filters + g.filters;
  const int64_t workspace = round_up(grid.x * elements * 4, 256);
  return function_kernel(
      [=, &device = request.device](const Call& call) {
        const bool pooled = g.unit == 2;
        const Routed routed{call.in(1), pooled ? call.in<uint8_t>(2) : nullptr,
                            pooled ? nullptr : call.in(2)};
        float* const parts = call.scratch<float>();
        const Arguments args{g,       tile,     call.in(0),       nullptr,
                             nullptr, routed,   nullptr,          nullptr,
                             parts,   elements, Divisor(g.out_w), Divisor(g.filters / 4)};
        if (pooled) {
          thin_filter_grad<true><<<grid, kThreads, bytes, call.stream>>>(args);
        } else {
          thin_filter_grad<false><<<grid, kThreads, bytes, call.stream>>>(args);
        }
        HR_CHECK(cudaGetLastError());
        sum_parts(device, parts, static_cast<int>(grid.x), elements, call.out(0), elements - g.filters,
                  call.out(1), call.stream);
      },
      workspace, starts_early(request.device, {0}));
}

}  // namespace headroom::cuda
