// Brings operands of ours into the types and the layout that cuDNN's tensor-core engines want. Knows no
// algorithm.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Bytes of `n` elements of a floating-point type of cuDNN.
int64_t bytes_of(cudnnDataType_t type, int64_t n);

// Queues to[i] = from[i] for i in [0, n), rounded to `type`: f32, bf16 or f16.
void convert(const CudaGpu& device, cudaStream_t stream, int64_t n, const float* from, cudnnDataType_t type,
             void* to);

// Queues from (rows,columns) -> to (columns,rows), rounded to `type`. A filter of ours, (KH,KW,C,K), is KH KW
// C rows of K; cuDNN's channels-last filter (K,KH,KW,C) is its transpose.
void transpose(cudaStream_t stream, int64_t rows, int64_t columns, const float* from, cudnnDataType_t type,
               void* to);

}  // namespace headroom::cuda
