#include "kernels/collective_kernels.h"
#include "kernels/cpu/cpu_kernels.h"

namespace headroom {

std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs, const KernelSettings& settings) {
  return std::visit(
      Overloaded{
          [&](const AllReduce& o) { return make_collective_kernel(o, inputs, settings.collective); },
          [&](const AllGatherUpdate& o) { return make_collective_kernel(o, inputs, settings.collective); },
          [&](const Conv2d& o) { return cpu::make_conv2d(o, inputs, outputs, settings.threads); },
          [&](const Conv2dInputGrad& o) { return cpu::make_conv2d_input_grad(o, inputs, outputs); },
          [&](const Conv2dFilterGrad& o) { return cpu::make_conv2d_filter_grad(o, inputs, outputs); },
          [&](const ConvBlock& o) { return cpu::make_conv_block(o, inputs, outputs, settings.threads); },
          [&](const ConvBlockInputGrad& o) {
            return cpu::make_conv_block_input_grad(o, inputs, outputs, settings.threads);
          },
          [&](const ConvBlockFilterGrad& o) {
            return cpu::make_conv_block_filter_grad(o, inputs, outputs, settings.threads);
          },
          [&](const MatMul& o) { return cpu::make_kernel(o, inputs, outputs, settings.threads); },
          [&](const Dense& o) { return cpu::make_kernel(o, inputs, outputs, settings.threads); },
          [&](const DenseFilterGrad& o) { return cpu::make_kernel(o, inputs, outputs, settings.threads); },
          [&](const auto& o) { return cpu::make_kernel(o, inputs, outputs); },
      },
      op);
}

}  // namespace headroom
