#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "kernels/collective_kernels.h"
#include "kernels/cuda/cuda_kernels.h"
#include "runtime/base/errors.h"

namespace headroom {

bool has_cuda_kernel(const Op& op) {
  return traits_of(op).has_cuda_kernel;
}

std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings) {
  using cuda::make_kernel;
  if (device.kernel_target().gpu == nullptr) {
    throw InvalidArgument(fmt::format("{} runs no CUDA kernels", device.name()));
  }
  const auto is_stored_half = [](const TensorSpec& spec) { return is_half(spec.dtype); };
  if (std::any_of(inputs.begin(), inputs.end(), is_stored_half) ||
      std::any_of(outputs.begin(), outputs.end(), is_stored_half)) {
    throw InvalidArgument(fmt::format(
        "{} has no CUDA kernel for 16 bits: take --precision f32, or a simulated GPU", op_name(op)));
  }
  cuda::CudaGpu& gpu = *device.kernel_target().gpu;
  device.initialise();
  const std::lock_guard lock(gpu.dnn_mutex());
  const int replicas = settings.collective == nullptr ? 1 : settings.collective->ranks_on_device();
  const cuda::Request request{{inputs, outputs, settings}, gpu, device, replicas};
  return std::visit(
      [&]<typename T>(const T& o) -> std::unique_ptr<Kernel> {
        if constexpr (requires { o.scaled; }) {
          if (o.scaled)
            throw InvalidArgument(fmt::format("{} with a loss scale has no CUDA kernel", op_name(op)));
        }
        if constexpr (T::kTraits.has_cuda_kernel) {
          return make_kernel(o, request);
        } else {
          throw InvalidArgument(fmt::format("{} has no CUDA kernel", op_name(op)));
        }
      },
      op);
}

}  // namespace headroom
