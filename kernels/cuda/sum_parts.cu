#include "kernels/cuda/conv_block.h"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

constexpr int kColumns = 32;  // sums of one block, side by side in memory
constexpr int kShares = 8;    // threads that share the parts of one sum

__global__ void __launch_bounds__(kColumns* kShares)
    sum_parts_kernel(const float* parts, int count, int64_t n, float* first, int64_t n_first, float* second) {
  __shared__ float shares[kShares][kColumns];
  const int column = threadIdx.x % kColumns, share = threadIdx.x / kColumns;
  const int64_t i = int64_t{blockIdx.x} * kColumns + column;
  float sum = 0;
  wait_for_earlier_work();
  if (i < n) {
#pragma unroll 4
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

void sum_parts(const CudaDevice& device, const float* parts, int count, int64_t n, float* first,
               int64_t n_first, float* second, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((n + kColumns - 1) / kColumns);
  launch_early(device, sum_parts_kernel, blocks, kColumns * kShares, stream, parts, count, n, first, n_first,
               second);
}

}  // namespace headroom::cuda
