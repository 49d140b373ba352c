#include "runtime/core/cuda/cuda_device.h"

#include <fmt/format.h>

#include "runtime/core/bytes.h"
#include "runtime/core/cuda/check.h"
#include "runtime/core/cuda/cuda_recording.h"
#include "runtime/core/errors.h"
#include "runtime/core/library_failure.h"

namespace headroom {

std::unique_ptr<Device> make_cuda_device(const CudaSettings& settings) {
  return std::make_unique<cuda::CudaDevice>(settings);
}

namespace cuda {

CudaDevice::CudaDevice(const CudaSettings& settings)
    : settings_(settings), name_(fmt::format("/device:GPU:{}", settings.ordinal)), memory_(settings.ordinal) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw InvalidArgument(
        fmt::format("no GPU: {}: {}", cudaGetErrorName(status), cudaGetErrorString(status)));
  }
  if (settings.ordinal < 0 || settings.ordinal >= count) {
    throw InvalidArgument(fmt::format("no GPU {}: {} visible", settings.ordinal, count));
  }
  cudaDeviceProp properties{};
  HR_CHECK(cudaGetDeviceProperties(&properties, settings.ordinal));
  description_ = properties.name;
  compute_capability_ = properties.major * 10 + properties.minor;
  multiprocessors_ = properties.multiProcessorCount;
}

CudaDevice::~CudaDevice() {
  if (dnn_ != nullptr) cudnnDestroy(dnn_);
  if (blas_ != nullptr) cublasDestroy(blas_);
}

void CudaDevice::initialise() {
  const std::lock_guard lock(mutex_);
  if (initialised_) return;
  HR_CHECK(cudaSetDevice(settings_.ordinal));
  HR_CHECK(cudaFree(nullptr));  // makes the context
  initialised_ = true;
}

void CudaDevice::start_library(Library library) {
  if (library == Library::kNone) return;
  initialise();
  const std::lock_guard lock(mutex_);
  std::string status;
  if (library == Library::kBlas && blas_ == nullptr) {
    const cublasStatus_t answer = cublasCreate(&blas_);
    if (answer != CUBLAS_STATUS_SUCCESS) status = cublasGetStatusName(answer);
  }
  if (library == Library::kDnn && dnn_ == nullptr) {
    const cudnnStatus_t answer = cudnnCreate(&dnn_);
    if (answer != CUDNN_STATUS_SUCCESS) status = cudnnGetErrorString(answer);
  }
  if (status.empty()) return;
  cudaGetLastError();
  throw library_start_failure(library, status,
                              fmt::format("{} free on the device", format_bytes(memory_.info().free)));
}

void CudaDevice::synchronize(Stream stream) {
  HR_CHECK(cudaStreamSynchronize(stream_of(stream)));
  index_faults_.throw_first();
}

std::unique_ptr<Recording> CudaDevice::record(std::span<const Task> tasks, int64_t repeats) {
  initialise();
  return std::make_unique<CudaRecording>(tasks, repeats);
}

cublasHandle_t CudaDevice::blas() {
  start_library(Library::kBlas);
  return blas_;
}

cudnnHandle_t CudaDevice::dnn() {
  start_library(Library::kDnn);
  return dnn_;
}

}  // namespace cuda
}  // namespace headroom
