// The streams and events of one NVIDIA GPU. Knows no kernel and no strategy.
#pragma once

#include <memory>

#include "device/cuda/cuda_gpu.h"
#include "device/device_streams.h"

namespace headroom::cuda {

class CudaEvent final : public Event {
 public:
  // Recorded at once. Throws DeviceError.
  explicit CudaEvent(cudaStream_t stream);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool done() const override;
  void wait() override;
  // Makes later work on `stream` begin after the event.
  void make_wait(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStreams final : public DeviceStreams {
 public:
  explicit CudaStreams(CudaGpu& gpu) : gpu_(gpu) {}

  Stream new_stream() override;
  void delete_stream(Stream stream) noexcept override;
  void wait(Stream stream, Stream other) override;
  void wait(Stream stream, const Event& event) override;
  std::unique_ptr<Event> record_event(Stream stream) override;
  void synchronize(Stream stream) override;

 private:
  CudaGpu& gpu_;
};

}  // namespace headroom::cuda
