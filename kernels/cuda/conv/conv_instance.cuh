// Chooses the instance of a convolution's kernel. Knows no kernel.
#pragma once

#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/mma.cuh"

namespace headroom::cuda {

// The rounding of operands, the number of columns of a block, and pooling of the convolution.
template <typename P, int columns, bool pooled>
struct ConvInstance {
  using Policy = P;
  static constexpr int kColumns = columns;
  static constexpr bool kPooled = pooled;
};

// Returns kernel_of(ConvInstance) for these values; `columns` is 16, 32 or 64. Its blocks may use all of the
// device's shared memory.
template <typename Kernel, typename KernelOf>
Kernel choose_instance(Math math, int columns, bool pooled, const CudaGpu& device, KernelOf kernel_of) {
  const Kernel kernel = with_policy(math, [&](auto policy) -> Kernel {
    using Policy = decltype(policy);
    if (columns == 16) {
      return pooled ? kernel_of(ConvInstance<Policy, 16, true>{})
                    : kernel_of(ConvInstance<Policy, 16, false>{});
    }
    if (columns == 32) {
      return pooled ? kernel_of(ConvInstance<Policy, 32, true>{})
                    : kernel_of(ConvInstance<Policy, 32, false>{});
    }
    return pooled ? kernel_of(ConvInstance<Policy, 64, true>{})
                  : kernel_of(ConvInstance<Policy, 64, false>{});
  });
  allow_shared_memory(reinterpret_cast<const void*>(kernel), device);
  return kernel;
}

}  // namespace headroom::cuda
