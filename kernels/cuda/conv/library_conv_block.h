// Convolution blocks and their gradients from cuDNN's convolution and small kernels around it: for all shapes
// and settings that our fused kernels do not take. Knows nothing of those.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

std::unique_ptr<Kernel> library_conv_block(const ConvBlock& op, const Request& request);
std::unique_ptr<Kernel> library_conv_block_input_grad(const ConvBlockInputGrad& op, const Request& request);
std::unique_ptr<Kernel> library_conv_block_filter_grad(const ConvBlockFilterGrad& op, const Request& request);

}  // namespace headroom::cuda
