#include "kernels/collective_kernels.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/half_kernel.h"
#include "kernels/custom_kernel.h"

namespace headroom {
namespace cpu {

std::unique_ptr<Kernel> make_kernel(const Custom& op, const Request& request) {
  return make_custom_kernel(*op.op, op.op->cpu, "cpu", request);
}

}  // namespace cpu

std::unique_ptr<Kernel> make_cpu_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                        std::span<const TensorSpec> outputs, const KernelSettings& settings) {
  using cpu::make_kernel;
  const bool converts =
      is_update(op) || std::holds_alternative<AllFinite>(op) || std::holds_alternative<Custom>(op);
  if (!converts && (cpu::has_half(inputs) || cpu::has_half(outputs)))
    return cpu::make_half_kernel(op, inputs, outputs, settings);
  const KernelRequest request{inputs, outputs, settings};
  return std::visit([&](const auto& o) { return make_kernel(o, request); }, op);
}

}  // namespace headroom
