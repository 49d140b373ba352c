// Programmatic dependent launch (CUDA programming guide): a kernel whose blocks get onto the GPU while the
// work before it still runs. Knows no op.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "runtime/device/cuda/check.h"

namespace headroom::cuda {

// GPUs from compute capability 9.0 on can do it.
inline constexpr int kLeastCapabilityOfEarlyStart = 90;

// Every thread of a kernel that starts early calls this before it reads what earlier work wrote, and before
// it writes anything. Then whoever waits for this kernel may start early too. That comes second, so that an
// early start never gets ahead of more than the work right before it: all that came earlier is done by then.
__device__ inline void wait_for_earlier_work() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// What function_kernel takes for kernels that read those inputs before they wait.
inline std::optional<std::vector<int>> starts_early(const CudaGpu& device, std::vector<int> inputs) {
  if (device.compute_capability() < kLeastCapabilityOfEarlyStart) return {};
  return inputs;
}

// Queues a kernel that starts early behind one of the same op.
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
  config.numAttrs = device.compute_capability() >= kLeastCapabilityOfEarlyStart ? 1 : 0;
  HR_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace headroom::cuda
