#include <fmt/format.h>

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/base/errors.h"

namespace headroom {

bool has_cuda_kernel(const Op& op) {
  return std::visit(
      []<typename T>(const T&) {
        return requires(const T& concrete, const cuda::Request& request) {
          cuda::make_kernel(concrete, request);
        };
      },
      op);
}

std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings) {
  auto& gpu = dynamic_cast<cuda::CudaDevice&>(device);
  gpu.initialise();
  const std::lock_guard lock(gpu.dnn_mutex());
  const int replicas = settings.collective == nullptr ? 1 : settings.collective->ranks_on_device();
  const cuda::Request request{inputs, outputs, gpu, settings, replicas};
  return std::visit(
      [&](const auto& concrete) -> std::unique_ptr<Kernel> {
        if constexpr (requires { cuda::make_kernel(concrete, request); }) {
          return cuda::make_kernel(concrete, request);
        } else {
          throw InvalidArgument(fmt::format("{} has no CUDA kernel", op_name(op)));
        }
      },
      op);
}

}  // namespace headroom
