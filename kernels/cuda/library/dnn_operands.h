// Converts our operands to the types and the layout that cuDNN's tensor-core engines need. Knows no
// algorithm.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Floats on the device, stored as `dtype` says.
struct DnnFloats {
  const void* data;
  DType dtype;
};

// Queues to[i] = from[i] for i in [0, n), rounded to the type of `to`.
void convert(const CudaGpu& device, cudaStream_t stream, int64_t n, DnnFloats from, DType type, void* to);

// Queues from (rows,columns) -> to (columns,rows), rounded to `type`. A filter of ours, (KH,KW,C,K), is KH KW
// C rows of K; cuDNN's channels-last filter (K,KH,KW,C) is its transpose.
void transpose(cudaStream_t stream, int64_t rows, int64_t columns, DnnFloats from, DType type, void* to);

}  // namespace headroom::cuda
