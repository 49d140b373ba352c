// Programmatic dependent launch (CUDA programming guide): blocks of a kernel start while the work before
// it still runs. Knows no op.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/check.h"
#include "kernels/cuda/cuda_kernels.h"

namespace headroom::cuda {

// The lowest compute capability that supports it.
inline constexpr int kMinCapabilityOfEarlyStart = 90;

// Every thread of a kernel that starts early calls this before it reads results of earlier work and before it
// writes. Only then may the next kernel start early: an early start overlaps only with the work right before
// it, and all earlier work is done.
__device__ inline void wait_for_earlier_work() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The early_inputs of a kernel that reads `inputs` before it waits.
inline std::optional<std::vector<int>> starts_early(const CudaGpu& device, std::vector<int> inputs) {
  if (device.compute_capability() < kMinCapabilityOfEarlyStart) return {};
  return inputs;
}

// Queues a kernel that starts early after another kernel of the same op.
template <typename... Parameters, typename... Arguments>
void launch_early(const CudaGpu& device, void (*kernel)(Parameters...), dim3 grid, int threads,
                  cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = device.compute_capability() >= kMinCapabilityOfEarlyStart ? 1 : 0;
  HR_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace headroom::cuda
