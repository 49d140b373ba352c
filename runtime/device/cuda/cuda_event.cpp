#include "runtime/device/cuda/cuda_event.h"

#include "runtime/device/cuda/check.h"

namespace headroom::cuda {

CudaEvent::CudaEvent(cudaStream_t stream) {
  HR_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  try {
    HR_CHECK(cudaEventRecord(event_, stream));
  } catch (...) {
    cudaEventDestroy(event_);
    throw;
  }
}

// The driver keeps what waits for it until it has been reached.
CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

bool CudaEvent::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  HR_CHECK(status);
  return true;
}

void CudaEvent::wait() {
  HR_CHECK(cudaEventSynchronize(event_));
}

void CudaEvent::make_wait(cudaStream_t stream) const {
  HR_CHECK(cudaStreamWaitEvent(stream, event_, 0));
}

}  // namespace headroom::cuda
