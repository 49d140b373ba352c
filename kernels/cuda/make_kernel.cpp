#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/errors.h"
#include "kernels/collective_kernels.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/custom_kernel.h"

namespace headroom {
namespace cuda {

std::unique_ptr<Kernel> make_kernel(const Custom& op, const Request& request) {
  return make_custom_kernel(*op.op, op.op->cuda, "cuda", request);
}

}  // namespace cuda

std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings) {
  using cuda::make_kernel;
  if (device.kernel_target().gpu == nullptr) {
    throw InvalidArgument(fmt::format("{} runs no CUDA kernels", device.name()));
  }
  const auto is_stored_half = [](const TensorSpec& spec) { return is_half(spec.dtype); };
  const bool any_half = std::any_of(inputs.begin(), inputs.end(), is_stored_half) ||
                        std::any_of(outputs.begin(), outputs.end(), is_stored_half);
  if (any_half && !traits_of(op).takes_half)
    throw InvalidArgument(fmt::format("{} has no CUDA kernel for 16 bits", op_name(op)));
  cuda::CudaGpu& gpu = *device.kernel_target().gpu;
  device.initialize();
  const std::lock_guard lock(gpu.dnn_mutex());
  const int replicas = settings.collective == nullptr ? 1 : settings.collective->ranks_on_device();
  const cuda::Request request{{inputs, outputs, settings}, gpu, device, replicas};
  return std::visit([&](const auto& o) { return make_kernel(o, request); }, op);
}

}  // namespace headroom
