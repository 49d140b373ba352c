// One NVIDIA GPU: its context, its memory and the handles of its libraries. Knows no kernel and no strategy.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <array>
#include <mutex>
#include <string>

#include "runtime/device/cuda/cuda_memory.h"
#include "runtime/device/cuda/index_faults.h"
#include "runtime/device/gpus.h"

namespace headroom::cuda {

// The stream of a Stream: null is CUDA's default one.
inline cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

class CudaDevice final : public Device {
 public:
  // See make_cuda_device.
  explicit CudaDevice(const CudaSettings& settings);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  const std::string& name() const override { return name_; }
  const std::string& description() const override { return description_; }
  int compute_capability() const override { return compute_capability_; }
  DeviceMemory& memory() override { return memory_; }
  void initialise() override;
  void start_library(Library library) override;
  void load_module(std::string_view, Library) override {}
  // Unknown before they have been used, and nothing that is known not to be taken after.
  int64_t pending_library_bytes() const override { return 0; }
  Stream new_stream() override;
  void delete_stream(Stream stream) noexcept override;
  void wait(Stream stream, Stream other) override;
  void wait(Stream stream, const Event& event) override;
  std::unique_ptr<Event> record_event(Stream stream) override;
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override;
  void synchronize(Stream stream) override;
  bool copy_from(Device& other, void* to, const void* from, int64_t bytes) override;
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override;
  double driver_time_us() const override { return memory_.driver_time_us(); }

  // The handles, made by start_library on first use. Throw LibraryError when they cannot be made. cuBLASLt
  // takes the cuBLAS handle too: cublasLtHandle_t(blas()).
  cublasHandle_t blas();
  cudnnHandle_t dnn();
  // Held by whoever calls cuDNN with the handle, or measures kernels: one thread at a time may, and virtual
  // devices of one GPU are used by a thread each.
  std::recursive_mutex& dnn_mutex() const { return dnn_mutex_; }
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  // What the library's handle took of the device when it was made; 0 before.
  int64_t library_bytes(Library library) const { return library_bytes_[static_cast<size_t>(library)]; }
  // Where kernels report indices outside their range; synchronize() throws what it finds there.
  IndexFaults& index_faults() { return index_faults_; }

 private:
  CudaDevice(const CudaSettings& settings, const cudaDeviceProp& properties);
  void make_context();

  const int ordinal_;
  const std::string name_, description_;
  const int64_t card_bytes_;
  const int compute_capability_;
  const int multiprocessors_;
  CudaMemory memory_;
  IndexFaults index_faults_;
  std::mutex mutex_;
  mutable std::recursive_mutex dnn_mutex_;
  bool initialised_ = false;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  std::array<int64_t, 3> library_bytes_{};  // by Library
};

}  // namespace headroom::cuda
