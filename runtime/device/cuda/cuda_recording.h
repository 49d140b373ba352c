// Tasks as one CUDA graph: what is not ordered runs side by side. Knows no device and no kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "runtime/device/device.h"

namespace headroom::cuda {

class CudaRecording final : public Recording {
 public:
  // Captures each task once for each repetition, on the current device, and makes it ready to launch. The
  // driver takes memory of its own for that. Throws as Device::record does, or what a task throws; then
  // nothing is left behind.
  CudaRecording(std::span<const Task> tasks, int64_t repeats);
  ~CudaRecording() override;
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  void launch(Stream stream) override;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace headroom::cuda
