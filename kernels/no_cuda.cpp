// Stub for a build without the CUDA toolkit, which makes no kernels for a GPU.
#include "base/errors.h"
#include "kernels/kernel.h"

namespace headroom {

std::unique_ptr<Kernel> make_cuda_kernel(const Op&, std::span<const TensorSpec>, std::span<const TensorSpec>,
                                         Device&, const KernelSettings&) {
  throw InvalidArgument("this build has no CUDA kernels");
}

}  // namespace headroom
