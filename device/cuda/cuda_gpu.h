// One NVIDIA GPU as kernels need it: its context, its properties and the handles of its libraries. Knows no
// kernel and no strategy.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <mutex>

#include "device/cuda/cuda_memory.h"
#include "device/cuda/index_faults.h"
#include "device/device.h"
#include "device/gpus.h"

namespace headroom::cuda {

// The stream of a Stream: null is CUDA's default one.
inline cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

class CudaGpu {
 public:
  // See make_cuda_device.
  explicit CudaGpu(const CudaSettings& settings);
  ~CudaGpu();
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  const DeviceInfo& info() const { return info_; }
  const std::string& description() const { return info_.description; }
  int compute_capability() const { return info_.compute_capability; }
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  CudaMemory& memory() { return memory_; }

  // See Device::initialize. Makes this GPU the calling thread's current one.
  void initialize();
  // See DeviceLibraries::start.
  void start(Library library);
  // The handles that start() has made. cuBLASLt takes the cuBLAS handle too: cublasLtHandle_t(blas()).
  cublasHandle_t blas() const { return blas_; }
  cudnnHandle_t dnn() const { return dnn_; }
  // To be held while calling cuDNN with the handle or timing kernels: only one thread at a time may, and the
  // virtual devices of one GPU have a thread each.
  std::recursive_mutex& dnn_mutex() const { return dnn_mutex_; }
  // Kernels report indices outside their range here; DeviceStreams::synchronize throws them.
  IndexFaults& index_faults() { return index_faults_; }

 private:
  CudaGpu(const CudaSettings& settings, const cudaDeviceProp& properties);
  void make_context();
  void give_stacks_back();

  const int ordinal_;
  const DeviceInfo info_;
  const int64_t card_bytes_;
  const int multiprocessors_;
  CudaMemory memory_;
  IndexFaults index_faults_;
  std::mutex mutex_;
  mutable std::recursive_mutex dnn_mutex_;
  bool initialized_ = false;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
};

}  // namespace headroom::cuda
