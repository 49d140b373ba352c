// Kernels that are compiled at run time by NVRTC, and kept in files between runs. Knows no op.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <string>

#include "device/cuda/cuda_gpu.h"

namespace headroom::cuda {

// Compiles CUDA source for a GPU of this compute capability (90: 9.0): machine code, or PTX of the newest one
// that this NVRTC knows, which the driver compiles further. Sources may include the texts of
// kernels/cuda/generated/device_texts.h, and no other file. Needs no GPU. Throws DeviceError with the
// compiler's first line for faulty source, and where NVRTC cannot start.
std::string compile_kernel(const std::string& source, int compute_capability);

// The function `kernel` of a source, loaded.
class CompiledKernel {
 public:
  // Compiles the source, or takes what another run has compiled. One source is compiled once.
  static std::shared_ptr<const CompiledKernel> of(const std::string& source, const CudaGpu& device);
  explicit CompiledKernel(const std::string& cubin);
  ~CompiledKernel();
  CompiledKernel(const CompiledKernel&) = delete;
  CompiledKernel& operator=(const CompiledKernel&) = delete;

  // `addresses` are the kernel's parameters, all of them pointers.
  void launch(dim3 grid, int threads, std::span<const void*> addresses, cudaStream_t stream) const;

 private:
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

}  // namespace headroom::cuda
