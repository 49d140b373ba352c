// The operations after a convolution in a forward pass. Knows no convolution.
#pragma once

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// Queues y = y + bias [+ residual], or relu of that, for y (rows,channels) and bias (channels). `residual` is
// null without one.
void add_conv_bias(const CudaGpu& device, cudaStream_t stream, const TensorView& y, const TensorView& bias,
                   const TensorView* residual, bool relu);

}  // namespace headroom::cuda
