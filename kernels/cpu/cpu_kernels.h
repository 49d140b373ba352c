// The families of CPU kernels, one factory each. Knows no graph and no strategy.
#pragma once

#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace headroom::cpu {

using Specs = std::span<const TensorSpec>;

// conv2d.cpp: any stride, padding, dilation and groups
std::unique_ptr<Kernel> make_conv2d(const Conv2d& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv2d_input_grad(const Conv2dInputGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv2d_filter_grad(const Conv2dFilterGrad& op, Specs inputs, Specs outputs);
// conv_block.cpp
std::unique_ptr<Kernel> make_conv_block(const ConvBlock& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv_block_input_grad(const ConvBlockInputGrad& op, Specs inputs, Specs outputs);
std::unique_ptr<Kernel> make_conv_block_filter_grad(const ConvBlockFilterGrad& op, Specs inputs, Specs outputs);

}  // namespace headroom::cpu
