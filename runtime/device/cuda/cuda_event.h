// A CUDA event, recorded when it is made. Knows no device.
#pragma once

#include <cuda_runtime.h>

#include "runtime/device/device.h"

namespace headroom::cuda {

class CudaEvent final : public Event {
 public:
  // Throws DeviceError.
  explicit CudaEvent(cudaStream_t stream);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool done() const override;
  void wait() override;
  // What is queued on `stream` from now on begins after the event.
  void make_wait(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace headroom::cuda
