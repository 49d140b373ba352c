// How much shared memory a block may have. Knows no op.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// The largest shared memory of a block, in bytes.
int64_t shared_limit_bytes(const CudaGpu& device);

// Lets a kernel use all of it as dynamic shared memory. The limit holds for every use of the kernel, so
// it must not depend on what one use needs.
void allow_shared_memory(const void* kernel, const CudaGpu& device);

}  // namespace headroom::cuda
