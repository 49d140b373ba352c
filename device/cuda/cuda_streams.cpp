#include "device/cuda/cuda_streams.h"

#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/current_device.h"

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

// The driver keeps the waits for the event until it has been reached.
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

Stream CudaStreams::new_stream() {
  gpu_.initialize();
  cudaStream_t stream = nullptr;
  HR_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {stream};
}

void CudaStreams::delete_stream(Stream stream) noexcept {
  cudaStreamDestroy(stream_of(stream));
}

// A null stream is the default one of the thread's current device, and events belong to theirs: calls with
// either have to be made on this GPU.
void CudaStreams::wait(Stream stream, Stream other) {
  const CurrentDevice current(gpu_.ordinal());
  const CudaEvent event(stream_of(other));
  event.make_wait(stream_of(stream));
}

void CudaStreams::wait(Stream stream, const Event& event) {
  const CurrentDevice current(gpu_.ordinal());
  const auto* recorded = dynamic_cast<const CudaEvent*>(&event);
  if (recorded == nullptr) throw InvalidArgument("wait: the event is another device's");
  recorded->make_wait(stream_of(stream));
}

std::unique_ptr<Event> CudaStreams::record_event(Stream stream) {
  const CurrentDevice current(gpu_.ordinal());
  return std::make_unique<CudaEvent>(stream_of(stream));
}

void CudaStreams::synchronize(Stream stream) {
  const CurrentDevice current(gpu_.ordinal());
  HR_CHECK(cudaStreamSynchronize(stream_of(stream)));
  gpu_.index_faults().throw_first();
}

}  // namespace headroom::cuda
