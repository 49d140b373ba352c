// The maximum shared memory of a block. Knows no op.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// The largest shared memory of a block, in bytes.
int64_t shared_limit_bytes(const CudaGpu& device);

// Lets a kernel use all of it as dynamic shared memory. The limit applies to every use of the kernel, so it
// must not depend on the needs of one use.
void allow_shared_memory(const void* kernel, const CudaGpu& device);

}  // namespace headroom::cuda
