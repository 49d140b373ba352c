#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/library/dnn_operands.h"

namespace headroom::cuda {
namespace {

// Elements on each side of the square that one block transposes, by threads of kTile x kRowsAtOnce.
constexpr int kTile = 32, kRowsAtOnce = 8;

struct Same {
  __device__ float operator()(float value) const { return value; }
};

__global__ void transpose_tile(int64_t rows, int64_t columns, Reals from, RealsOut to) {
  __shared__ float tile[kTile][kTile + 1];  // the last column keeps columns of threads in different banks
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row = int64_t{blockIdx.x} * kTile, column = int64_t{blockIdx.y} * kTile;
  for (int i = y; i < kTile; i += kRowsAtOnce) {
    if (row + i < rows && column + x < columns) tile[i][x] = from[(row + i) * columns + column + x];
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kRowsAtOnce) {
    if (column + i < columns && row + x < rows) to.set((column + i) * rows + row + x, tile[x][i]);
  }
}

}  // namespace

void convert(const CudaGpu& device, cudaStream_t stream, int64_t n, DnnFloats from, DType type, void* to) {
  map(device, stream, 8, Same(), n, RealsOut{to, type}, Reals{from.data, from.dtype});
}

void transpose(cudaStream_t stream, int64_t rows, int64_t columns, DnnFloats from, DType type, void* to) {
  const dim3 tiles(static_cast<unsigned>(ceil_div(rows, kTile)),
                   static_cast<unsigned>(ceil_div(columns, kTile)));
  launch(transpose_tile, tiles, kTile * kRowsAtOnce, stream, rows, columns, Reals{from.data, from.dtype},
         RealsOut{to, type});
}

}  // namespace headroom::cuda
