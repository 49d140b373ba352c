#include <fmt/format.h>

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/core/errors.h"

namespace headroom {

std::unique_ptr<Kernel> make_cuda_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, Device& device,
                                         const KernelSettings& settings) {
  auto& gpu = dynamic_cast<cuda::CudaDevice&>(device);
  [[maybe_unused]] const cuda::Request request{inputs, outputs, gpu, settings};
  throw InvalidArgument(fmt::format("{} has no CUDA kernel", op_name(op)));
}

}  // namespace headroom
