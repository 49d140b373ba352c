// Captures of a GPU's work as CUDA graphs: each task is captured from a stream, and only the given order is
// kept, so that the GPU runs independent tasks concurrently. The graph may hold the work of several GPUs. A
// launch is one call of the driver. Knows no kernel.
#pragma once

#include <memory>
#include <span>

#include "device/cuda/cuda_gpu.h"
#include "device/device_captures.h"

namespace headroom::cuda {

class CudaCaptures final : public DeviceCaptures {
 public:
  // The GPU must outlive this and all captures.
  explicit CudaCaptures(CudaGpu& gpu) : gpu_(gpu) {}

  std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) override;
  bool call_tasks() const override { return false; }

 private:
  CudaGpu& gpu_;
};

}  // namespace headroom::cuda
