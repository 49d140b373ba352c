#include <algorithm>
#include <type_traits>

#include "kernels/cuda/conv/block_steps.h"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// Returns the position of its window through which an output's gradient passes, if any.
__device__ uint8_t position_of(const uint8_t* index, int64_t output) {
  return index[output];
}
__device__ uint8_t position_of(const float* y, int64_t output) {
  return y[output] <= 0 ? kNoGradient : 0;  // NaN passes, as everywhere
}

// Calls f with the route in its own type.
template <typename F>
void with_route(const BlockShape& shape, const void* route, F f) {
  if (shape.pooled) return f(static_cast<const uint8_t*>(route));
  f(static_cast<const float*>(route));
}

template <typename I>
__global__ void bias_relu_pool_kernel(BlockShape s, Divider<I> channels, Divider<I> columns, Divider<I> rows,
                                      I outputs, const float* z, const float* bias, float* y,
                                      uint8_t* index) {
  for (I i = static_cast<I>(grid_thread()); i < outputs; i += static_cast<I>(grid_threads())) {
    const I pixel = channels.quotient(i), line = columns.quotient(pixel), image = rows.quotient(line);
    const I k = i - pixel * channels.divisor;
    const int top = static_cast<int>(line - image * rows.divisor) * s.pool.stride[0] - s.pool.padding[0];
    const int left = static_cast<int>(pixel - line * columns.divisor) * s.pool.stride[1] - s.pool.padding[1];
    float best = 0;
    uint8_t position = kNoGradient;
    for (int r = 0; r < s.pool.window[0]; ++r) {
      for (int c = 0; c < s.pool.window[1]; ++c) {
        const int row = top + r, column = left + c;
        if (row < 0 || column < 0 || row >= s.height || column >= s.width) continue;
        const float value =
            z[((static_cast<int64_t>(image) * s.height + row) * s.width + column) * s.channels + k] + bias[k];
        // Only values above 0 replace the initial one; NaN wins over numbers and then stays.
        if (!(value <= best) && best == best) {
          best = value;
          position = static_cast<uint8_t>(r * s.pool.window[1] + c);
        }
      }
    }
    y[i] = best;
    if (index != nullptr) index[i] = position;
  }
}

// One position of dz looks at the windows that hold it, so that overlapping ones need no atomic addition.
template <typename I, typename Route>
__global__ void route_kernel(BlockShape s, Divider<I> channels, Divider<I> columns, Divider<I> rows,
                             I elements, const float* dy, const Route* route, float* dz) {
  for (I i = static_cast<I>(grid_thread()); i < elements; i += static_cast<I>(grid_threads())) {
    const I pixel = channels.quotient(i), line = columns.quotient(pixel), image = rows.quotient(line);
    const I k = i - pixel * channels.divisor;
    const int row = static_cast<int>(line - image * rows.divisor) + s.pool.padding[0];
    const int column = static_cast<int>(pixel - line * columns.divisor) + s.pool.padding[1];
    float sum = 0;
    const int first_row = max(0, (row - s.pool.window[0]) / s.pool.stride[0]);
    const int first_column = max(0, (column - s.pool.window[1]) / s.pool.stride[1]);
    for (int oy = first_row; oy < s.out_h && oy * s.pool.stride[0] <= row; ++oy) {
      const int r = row - oy * s.pool.stride[0];
      if (r >= s.pool.window[0]) continue;
      for (int ox = first_column; ox < s.out_w && ox * s.pool.stride[1] <= column; ++ox) {
        const int c = column - ox * s.pool.stride[1];
        if (c >= s.pool.window[1]) continue;
        const int64_t at = ((static_cast<int64_t>(image) * s.out_h + oy) * s.out_w + ox) * s.channels + k;
        if (position_of(route, at) == r * s.pool.window[1] + c) sum += dy[at];
      }
    }
    dz[i] = sum;
  }
}

constexpr int kColumns = 32, kRows = 8;  // threads of a block that adds up columns
constexpr int64_t kMaxParts = 256;       // about two blocks for each multiprocessor of a large GPU
constexpr int64_t kRowsOfPart = 64;      // fewer would leave more to add up than was added

int64_t parts_of(const BlockShape& shape) {
  const int64_t rows = shape.images * shape.out_h * shape.out_w;
  return std::clamp<int64_t>(ceil_div(rows, kRowsOfPart), 1, kMaxParts);
}

// Block (x, part) adds up rows part, part + parts, ... of 32 columns.
template <typename Route>
__global__ void sum_kernel(int64_t rows, int64_t channels, const float* dy, const Route* route,
                           float* parts) {
  __shared__ float sums[kRows][kColumns];
  const int x = static_cast<int>(threadIdx.x) % kColumns, y = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t column = int64_t{blockIdx.x} * kColumns + x;
  float sum = 0;
  if (column < channels) {
    for (int64_t row = int64_t{blockIdx.y} * kRows + y; row < rows; row += int64_t{gridDim.y} * kRows) {
      const int64_t at = row * channels + column;
      if (position_of(route, at) != kNoGradient) sum += dy[at];
    }
  }
  sums[y][x] = sum;
  __syncthreads();
  if (y != 0 || column >= channels) return;
  for (int other = 1; other < kRows; ++other) sum += sums[other][x];
  parts[int64_t{blockIdx.y} * channels + column] = sum;
}

}  // namespace

BlockShape::BlockShape(const ConvBlock& block, const Shape& convolved)
    : images(convolved[0]),
      height(convolved[1]),
      width(convolved[2]),
      channels(convolved[3]),
      pooled(block.pool.has_value()),
      pool(block.pool.value_or(Pool2d{{1, 1}, {1, 1}, {0, 0}})) {
  out_h = window_output(height, pool.window[0], pool.stride[0], pool.padding[0], 1);
  out_w = window_output(width, pool.window[1], pool.stride[1], pool.padding[1], 1);
}

BlockShape BlockShape::with_images(int64_t count) const {
  BlockShape result = *this;
  result.images = count;
  return result;
}

void bias_relu_pool(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* z,
                    const float* bias, float* y, uint8_t* index) {
  const int64_t n = shape.outputs();
  with_index_type(n, [&](auto zero) {
    using I = decltype(zero);
    launch(bias_relu_pool_kernel<I>, blocks_for(device, n), kThreads, stream, shape,
           Divider<I>(shape.channels), Divider<I>(shape.out_w), Divider<I>(shape.out_h), static_cast<I>(n), z,
           bias, y, index);
  });
}

void route_gradient(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* dy,
                    const void* route, float* dz) {
  const int64_t n = shape.elements();
  with_route(shape, route, [&](auto typed_route) {
    using Route = std::remove_cvref_t<decltype(*typed_route)>;
    with_index_type(n, [&](auto zero) {
      using I = decltype(zero);
      launch(route_kernel<I, Route>, blocks_for(device, n), kThreads, stream, shape,
             Divider<I>(shape.channels), Divider<I>(shape.width), Divider<I>(shape.height), static_cast<I>(n),
             dy, typed_route, dz);
    });
  });
}

int64_t sum_gradient_bytes(const BlockShape& shape) {
  return parts_of(shape) * shape.channels * int64_t{sizeof(float)};
}

void sum_gradient(const CudaGpu& device, cudaStream_t stream, const BlockShape& shape, const float* dy,
                  const void* route, float* dbias, void* workspace) {
  const int64_t parts = parts_of(shape);
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.channels, kColumns)), static_cast<unsigned>(parts));
  auto* sums = static_cast<float*>(workspace);
  with_route(shape, route, [&](auto typed_route) {
    using Route = std::remove_cvref_t<decltype(*typed_route)>;
    launch(sum_kernel<Route>, grid, kColumns * kRows, stream, shape.images * shape.out_h * shape.out_w,
           shape.channels, dy, typed_route, sums);
  });
  sum_parts(device, sums, static_cast<int>(parts), shape.channels, dbias, shape.channels, nullptr, stream);
}

}  // namespace headroom::cuda
