#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/library/dnn_operands.h"

namespace headroom::cuda {
namespace {

// Elements on each side of the square that one block transposes, by threads of kTile x kRowsAtOnce.
constexpr int kTile = 32, kRowsAtOnce = 8;

template <typename To>
struct Round {
  __device__ To operator()(float value) const { return To(value); }
};

template <typename To>
__global__ void transpose_tile(int64_t rows, int64_t columns, const float* from, To* to) {
  __shared__ float tile[kTile][kTile + 1];  // the last column keeps columns of threads in different banks
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row = int64_t{blockIdx.x} * kTile, column = int64_t{blockIdx.y} * kTile;
  for (int i = y; i < kTile; i += kRowsAtOnce) {
    if (row + i < rows && column + x < columns) tile[i][x] = from[(row + i) * columns + column + x];
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kRowsAtOnce) {
    if (column + i < columns && row + x < rows) to[(column + i) * rows + row + x] = To(tile[x][i]);
  }
}

// Calls f(To{}) with the C++ type of `type`.
template <typename F>
void with_type(cudnnDataType_t type, F f) {
  if (type == CUDNN_DATA_BFLOAT16) return f(__nv_bfloat16{});
  if (type == CUDNN_DATA_HALF) return f(__half{});
  f(float{});
}

}  // namespace

int64_t bytes_of(cudnnDataType_t type, int64_t n) {
  return n * (type == CUDNN_DATA_FLOAT ? 4 : 2);
}

void convert(const CudaGpu& device, cudaStream_t stream, int64_t n, const float* from, cudnnDataType_t type,
             void* to) {
  with_type(type, [&](auto zero) {
    using To = decltype(zero);
    map(device, stream, Round<To>(), n, static_cast<To*>(to), from);
  });
}

void transpose(cudaStream_t stream, int64_t rows, int64_t columns, const float* from, cudnnDataType_t type,
               void* to) {
  const dim3 tiles(static_cast<unsigned>(ceil_div(rows, kTile)),
                   static_cast<unsigned>(ceil_div(columns, kTile)));
  with_type(type, [&](auto zero) {
    using To = decltype(zero);
    launch(transpose_tile<To>, tiles, kTile * kRowsAtOnce, stream, rows, columns, from, static_cast<To*>(to));
  });
}

}  // namespace headroom::cuda
