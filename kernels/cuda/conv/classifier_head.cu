// The whole head of a classifier in one launch. Each block of threads processes some rows of x from the first
// layer to the loss and back, so that no step in between waits for global memory. The weights of the first
// layer stay in shared memory, where they are read once along their columns (forward) and once along their
// rows (backward). The first layer's products run on the tensor cores, transposed: rows are hidden units or
// elements of x, columns are rows of x. The second layer is so small that it is computed in plain f32.
#include <cuda_pipeline.h>

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "device/cuda/check.h"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/conv/conv_stage.cuh"
#include "kernels/cuda/early_start.cuh"
#include "kernels/cuda/index_report.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/sequence_kernel.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kRowsOfTile = 8;  // rows of x in a tile: the columns of an mma
constexpr int64_t kStaticBytes =
    1024;                        // at least what the kernel declares: labels, losses' gradients, biases
constexpr int kMaxClasses = 32;  // a class per lane
constexpr unsigned kAllLanes = ~0u;

struct Extents {
  int rows, terms, hidden, classes;

  // In words, so that the lanes of a warp reach different banks: 8 more than a multiple of 32 between terms,
  // 4 more between rows.
  __host__ __device__ int weight_pitch() const { return (hidden + 31) / 32 * 32 + 8; }
  __host__ __device__ int x_pitch() const { return (terms + 31) / 32 * 32 + 4; }
  __host__ __device__ int hidden_pitch() const { return (hidden + 31) / 32 * 32 + 4; }
  // Warps that share the sums of 16 hidden units, each for some of the terms.
  __host__ __device__ int parts() const { return kWarps / (hidden / 16); }
};

struct Arguments {
  Extents e;
  Divisor by_hidden, by_hidden_quads, by_x_quads;
  const float *x, *w1, *b1, *w2, *b2;
  const int32_t* labels;
  const float* dloss;
  float *hidden, *logits, *loss, *dlogits, *dhidden, *dx;
  FaultSlot faults;
};

// The layout of a block's shared memory, all of it in f32; in elements from the start.
struct Layout {
  int w1, x, sums, hidden, dhidden, w2, end;

  __host__ __device__ Layout(const Extents& e, int rows) {
    w1 = 0;                                               // (terms, weight_pitch)
    x = w1 + e.terms * e.weight_pitch();                  // (rows, x_pitch)
    sums = x + rows * e.x_pitch();                        // (parts, rows, hidden_pitch)
    hidden = sums + e.parts() * rows * e.hidden_pitch();  // (rows, hidden_pitch)
    dhidden = hidden + rows * e.hidden_pitch();           // likewise
    w2 = dhidden + rows * e.hidden_pitch();               // (hidden, classes)
    end = w2 + e.hidden * e.classes;
  }
};

__device__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

// The second layer, the loss and the way back to the hidden units for one row, by one warp.
__device__ inline void finish_row(const Arguments& args, int row, int32_t label, float dloss, const float* b2,
                                  const float* hidden, const float* w2, float* dhidden) {
  const Extents& e = args.e;
  const int lane = threadIdx.x % 32;
  const bool is_class = lane < e.classes;
  float parts[4] = {is_class ? b2[lane] : 0.0f};
  if (is_class) {
#pragma unroll 4
    for (int h = 0; h < e.hidden; h += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[i] += hidden[h + i] * w2[(h + i) * e.classes + lane];
    }
  }
  const float logit = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  const float largest = warp_max(is_class ? logit : -INFINITY);
  const float power = is_class ? expf(logit - largest) : 0.0f;
  const float sum = warp_sum(power);
  const bool valid = in_range(label, e.classes);
  if (!valid && lane == 0) report(args.faults, row, label);
  const float own = __shfl_sync(kAllLanes, logit, valid ? label : 0) - largest;
  if (lane == 0) args.loss[row] = logf(sum) - own;
  const float dlogit = (power / sum - (lane == label ? 1.0f : 0.0f)) * dloss;
  if (is_class) {
    args.logits[int64_t{row} * e.classes + lane] = logit;
    args.dlogits[int64_t{row} * e.classes + lane] = dlogit;
  }
  for (int first = 0; first < e.hidden; first += 32) {
    const int h = first + lane;
    float gradient = 0;
#pragma unroll 4
    for (int c = 0; c < e.classes; ++c) {
      const float share = __shfl_sync(kAllLanes, dlogit, c);
      if (h < e.hidden) gradient += share * w2[h * e.classes + c];
    }
    if (h >= e.hidden) continue;
    if (hidden[h] <= 0) gradient = 0;  // NaN stays
    args.dhidden[int64_t{row} * e.hidden + h] = gradient;
    dhidden[h] = gradient;
  }
}

template <typename Policy, int kTiles>
__global__ void __launch_bounds__(kThreads) classifier_head(const __grid_constant__ Arguments args) {
  constexpr int kRows = kTiles * kRowsOfTile;
  constexpr int kTermsOfStep = kWordsOfStep * Policy::kTermsOfWord;
  const Extents& e = args.e;
  const Layout layout(e, kRows);
  const int weight_pitch = e.weight_pitch(), x_pitch = e.x_pitch(), hidden_pitch = e.hidden_pitch();
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  extern __shared__ float4 shared[];
  float* const w1 = reinterpret_cast<float*>(shared);
  float *const x = w1 + layout.x, *const sums = w1 + layout.sums, *const hidden = w1 + layout.hidden;
  float *const dhidden = w1 + layout.dhidden, *const w2 = w1 + layout.w2;

  for (int i = threadIdx.x; i < e.terms * e.hidden / 4; i += kThreads) {
    int quad;
    const int term = args.by_hidden_quads.divide(i, quad);
    __pipeline_memcpy_async(w1 + term * weight_pitch + quad * 4, args.w1 + i * 4, sizeof(float4));
  }
  for (int i = threadIdx.x; i < e.hidden * e.classes; i += kThreads) w2[i] = args.w2[i];
  __shared__ int32_t labels[kRows];
  __shared__ float dloss[kRows], b2[kMaxClasses];
  if (static_cast<int>(threadIdx.x) < e.classes) b2[threadIdx.x] = args.b2[threadIdx.x];

  const int blocks_of_rows = (e.rows + kRows - 1) / kRows;
  for (int block = blockIdx.x; block < blocks_of_rows; block += gridDim.x) {
    const int row0 = block * kRows, rows = min(kRows, e.rows - row0);
    if (static_cast<int>(threadIdx.x) < rows) {
      labels[threadIdx.x] = args.labels[row0 + threadIdx.x];
      dloss[threadIdx.x] = args.dloss[row0 + threadIdx.x];
    }
    if (block == static_cast<int>(blockIdx.x)) wait_for_earlier_work();
    for (int i = threadIdx.x; i < kRows * e.terms / 4; i += kThreads) {
      int quad;
      const int row = args.by_x_quads.divide(i, quad);
      float* const to = x + row * x_pitch + quad * 4;
      if (row < rows) {
        __pipeline_memcpy_async(to, args.x + int64_t{row0} * e.terms + i * 4, sizeof(float4));
      } else {
        *reinterpret_cast<float4*>(to) = {};
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();

    {  // hidden = x w1: 16 hidden units and a part of the terms to a warp
      const int unit0 = warp / e.parts() * 16, part = warp % e.parts();
      float products[kTiles][4] = {};
      const int steps = e.terms / kTermsOfStep;
      for (int step = part; step < steps; step += e.parts()) {
        const float* const from = w1 + step * kTermsOfStep * weight_pitch + unit0 + g;
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = word_of<Policy>(from + i % 2 * 8, t + i / 2 * 4, weight_pitch);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const float* const row = x + (tile * kRowsOfTile + g) * x_pitch + step * kTermsOfStep;
          const uint32_t b[2] = {word_of<Policy>(row, t, 1), word_of<Policy>(row, t + 4, 1)};
          Policy::multiply_add(products[tile], a, b);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = tile * kRowsOfTile + 2 * t + i % 2, unit = unit0 + g + i / 2 * 8;
          sums[(part * kRows + row) * hidden_pitch + unit] = products[tile][i];
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * e.hidden; i += kThreads) {
      int unit;
      const int row = args.by_hidden.divide(i, unit);
      float value = args.b1[unit];
      for (int part = 0; part < e.parts(); ++part) value += sums[(part * kRows + row) * hidden_pitch + unit];
      if (value <= 0) value = 0;  // NaN stays
      hidden[row * hidden_pitch + unit] = value;
      dhidden[row * hidden_pitch + unit] = 0;  // zero for rows that do not exist
      if (row < rows) args.hidden[int64_t{row0 + row} * e.hidden + unit] = value;
    }
    __syncthreads();
    for (int row = warp; row < rows; row += kWarps) {
      finish_row(args, row0 + row, labels[row], dloss[row], b2, hidden + row * hidden_pitch, w2,
                 dhidden + row * hidden_pitch);
    }
    __syncthreads();

    // dx = dhidden w1^T: 16 terms to a warp at a time
    for (int term0 = warp * 16; term0 < e.terms; term0 += kWarps * 16) {
      float products[kTiles][4] = {};
      for (int unit = 0; unit < e.hidden; unit += kTermsOfStep) {
        const float* const from = w1 + (term0 + g) * weight_pitch + unit;
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = word_of<Policy>(from + i % 2 * 8 * weight_pitch, t + i / 2 * 4, 1);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const float* const row = dhidden + (tile * kRowsOfTile + g) * hidden_pitch + unit;
          const uint32_t b[2] = {word_of<Policy>(row, t, 1), word_of<Policy>(row, t + 4, 1)};
          Policy::multiply_add(products[tile], a, b);
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = tile * kRowsOfTile + 2 * t + i % 2, term = term0 + g + i / 2 * 8;
          if (row < rows) args.dx[int64_t{row0 + row} * e.terms + term] = products[tile][i];
        }
      }
    }
    __syncthreads();  // before the next rows replace these
  }
}

using HeadKernel = void (*)(Arguments);

template <int kTiles>
HeadKernel instance_of(Math math) {
  return with_policy(math,
                     [](auto policy) -> HeadKernel { return &classifier_head<decltype(policy), kTiles>; });
}

// The extents of a head that the kernel takes.
std::optional<Extents> extents_of(const Request& request) {
  const Shape &x = request.inputs[0].shape, &w2 = request.inputs[3].shape;
  const int64_t hidden = w2[0], classes = w2[1];
  if (request.settings.library_only || request.device.compute_capability() < kMinCapabilityOfMma) return {};
  if (x[0] == 0 || x[0] > 1 << 24 || x[1] == 0 || x[1] % 16 != 0 || x[1] > 1 << 14) return {};
  if (hidden != 16 && hidden != 32 && hidden != 64 && hidden != 128) return {};
  if (classes > kMaxClasses) return {};
  return Extents{static_cast<int>(x[0]), static_cast<int>(x[1]), static_cast<int>(hidden),
                 static_cast<int>(classes)};
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ClassifierHead&, const Request& request) {
  CudaGpu& device = request.device;
  const auto use_parts = [&] {
    return make_sequence_kernel(parts_of_classifier_head(), request.inputs, request.outputs,
                                [&](const Op& op, auto inputs, auto outputs) {
                                  return make_cuda_kernel(op, inputs, outputs, request.owner,
                                                          request.settings);
                                });
  };
  const std::optional<Extents> e = extents_of(request);
  if (!e) return use_parts();
  // The fewest rows per block with which no multiprocessor runs two blocks in sequence, if they fit.
  const auto bytes_of = [&](int tiles) { return int64_t{Layout(*e, tiles * kRowsOfTile).end} * 4; };
  const int64_t limit = shared_limit_bytes(device) - kStaticBytes;
  if (bytes_of(1) > limit) return use_parts();
  int tiles = 1;
  while (tiles < 4 && e->rows > tiles * kRowsOfTile * device.multiprocessors() &&
         bytes_of(2 * tiles) <= limit) {
    tiles *= 2;
  }
  const int bytes = static_cast<int>(bytes_of(tiles));
  const Math math = request.settings.math;
  const HeadKernel kernel = tiles == 1   ? instance_of<1>(math)
                            : tiles == 2 ? instance_of<2>(math)
                                         : instance_of<4>(math);
  allow_shared_memory(reinterpret_cast<const void*>(kernel), device);
  const int rows = tiles * kRowsOfTile;
  const auto blocks = static_cast<unsigned>(std::min((e->rows + rows - 1) / rows, device.multiprocessors()));
  return function_kernel(
      [e = *e, kernel, blocks, bytes,
       faults = device.index_faults().add("cross_entropy", "label", e->classes)](const Call& call) {
        kernel<<<blocks, kThreads, bytes, call.stream>>>(
            {e, Divisor(e.hidden), Divisor(e.hidden / 4), Divisor(e.terms / 4), call.in(0), call.in(1),
             call.in(2), call.in(3), call.in(4), call.in<int32_t>(5), call.in(6), call.out(0), call.out(1),
             call.out(2), call.out(3), call.out(4), call.out(5), faults.slot()});
        HR_CHECK(cudaGetLastError());
      },
      0, starts_early(device, {1, 3, 4, 5, 6}));
}

}  // namespace headroom::cuda
