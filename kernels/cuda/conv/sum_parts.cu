#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;

// kThreads / kShares sums to a block, side by side in memory; kShares threads share the parts of one sum.
template <int kShares>
__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(const float* parts, int count, int64_t n, float* first, int64_t n_first, float* second) {
  constexpr int kColumns = kThreads / kShares;
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
    const int columns = kThreads / shares;
    launch_early(device, kernel, static_cast<unsigned>((n + columns - 1) / columns), kThreads, stream, parts,
                 count, n, first, n_first, second);
  };
  // All loads of a thread should be on their way together, and few sums still occupy many multiprocessors.
  if (count > 64) {
    queue(sum_parts_kernel<32>, 32);
  } else {
    queue(sum_parts_kernel<8>, 8);
  }
}

}  // namespace headroom::cuda
