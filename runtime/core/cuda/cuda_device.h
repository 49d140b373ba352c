// One NVIDIA GPU: its context, its memory and the handles of its libraries. Knows no kernel and no strategy.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <mutex>
#include <string>

#include "runtime/core/cuda/cuda_memory.h"
#include "runtime/core/cuda/devices.h"
#include "runtime/core/cuda/index_faults.h"

namespace headroom::cuda {

// The stream of a Stream: null is CUDA's default one.
inline cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

class CudaDevice final : public Device {
 public:
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
  int64_t pending_library_bytes() const override { return 0; }
  void synchronize(Stream stream) override;
  std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) override;
  double driver_time_us() const override { return 0; }

  // The handles, made by start_library on first use. Throw LibraryError when they cannot be made. cuBLASLt
  // takes the cuBLAS handle too: cublasLtHandle_t(blas()).
  cublasHandle_t blas();
  cudnnHandle_t dnn();
  int ordinal() const { return settings_.ordinal; }
  int multiprocessors() const { return multiprocessors_; }
  // Where kernels report indices outside their range; synchronize() throws what it finds there.
  IndexFaults& index_faults() { return index_faults_; }

 private:
  const CudaSettings settings_;
  std::string name_, description_;
  int compute_capability_ = 0;
  int multiprocessors_ = 0;
  CudaMemory memory_;
  IndexFaults index_faults_;
  std::mutex mutex_;
  bool initialised_ = false;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
};

}  // namespace headroom::cuda
