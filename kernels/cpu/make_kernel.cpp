#include "kernels/collective_kernels.h"
#include "kernels/cpu/cpu_kernels.h"

namespace headroom {

std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs, const KernelSettings& settings) {
  using cpu::make_kernel;
  const KernelRequest request{inputs, outputs, settings};
  return std::visit([&](const auto& o) { return make_kernel(o, request); }, op);
}

}  // namespace headroom
