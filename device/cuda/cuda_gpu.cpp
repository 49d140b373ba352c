#include "device/cuda/cuda_gpu.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/driver.h"
#include "device/cuda/visible_gpus.h"

namespace headroom::cuda {
namespace {

cudaDeviceProp properties_of(int ordinal) {
  const int count = count_gpus();
  if (ordinal < 0 || ordinal >= count) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw InvalidArgument(
        fmt::format("no GPU {}: {}, counted from 0{}", ordinal,
                    count == 1 ? std::string("only one is visible") : fmt::format("{} are visible", count),
                    visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible)));
  }
  cudaDeviceProp properties{};
  HR_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  return properties;
}

}  // namespace

CudaGpu::CudaGpu(const CudaSettings& settings) : CudaGpu(settings, properties_of(settings.ordinal)) {}

CudaGpu::CudaGpu(const CudaSettings& settings, const cudaDeviceProp& properties)
    : ordinal_(settings.ordinal),
      info_{settings.name.empty() ? fmt::format("/device:GPU:{}", settings.ordinal) : settings.name,
            properties.name, properties.major * 10 + properties.minor},
      card_bytes_(static_cast<int64_t>(properties.totalGlobalMem)),
      multiprocessors_(properties.multiProcessorCount),
      memory_(settings, card_bytes_, pci_bus_id_of(settings.ordinal)) {}

CudaGpu::~CudaGpu() {
  if (dnn_ != nullptr) cudnnDestroy(dnn_);
  if (blas_ != nullptr) cublasDestroy(blas_);
}

void CudaGpu::initialize() {
  const std::lock_guard lock(mutex_);
  if (!initialized_) {
    make_context();
    memory_.hold_the_rest();
    initialized_ = true;
  }
  HR_CHECK(cudaSetDevice(ordinal_));  // each thread has its own current device
}

// Calls the driver itself, because users know that call's name and status; the runtime library would only say
// "out of memory".
void CudaGpu::make_context() {
  const Driver& driver = Driver::instance();
  CUdevice device = 0;
  HR_CHECK(driver.init(0));
  HR_CHECK(driver.device_get(&device, ordinal_));
  unsigned flags = 0;
  int is_there = 0;
  HR_CHECK(driver.get_primary_context_state(device, &flags, &is_there));
  CUcontext context = nullptr;
  const CUresult status = driver.retain_primary_context(&context, device);
  if (status != CUDA_SUCCESS)
    throw context_failure(ordinal_, driver.name_of(status), driver.description_of(status), card_bytes_);
  HR_CHECK(cudaSetDevice(ordinal_));  // to set it back later would make the context of another GPU
  memory_.note_context(is_there == 0);
  if (is_there == 0) give_stacks_back();
}

// A new context reserves a stack of 1 KiB (cudaLimitStackSize) for each thread that the card can run: half of
// its memory on an H100, 264 of 527 MiB. No kernel needs that: the driver knows the needs of each kernel that
// it launches, and reserves as much ("the driver automatically increases the per-thread stack size for each
// kernel launch as needed", cuCtxSetLimit). It does not know the needs of kernels that call themselves, or
// functions by their address. We have none; a program whose context existed before may have some, so its
// limit stays. A driver that refuses keeps the stacks.
void CudaGpu::give_stacks_back() {
  if (cudaDeviceSetLimit(cudaLimitStackSize, 0) != cudaSuccess) cudaGetLastError();
}

void CudaGpu::start(Library library) {
  if (library == Library::kNone) return;
  initialize();
  const std::lock_guard lock(mutex_);
  if (library == Library::kBlas ? blas_ != nullptr : dnn_ != nullptr) return;
  std::string status;
  if (library == Library::kBlas) {
    const cublasStatus_t answer = cublasCreate(&blas_);
    if (answer != CUBLAS_STATUS_SUCCESS) status = cublasGetStatusName(answer);
  } else {
    const cudnnStatus_t answer = cudnnCreate(&dnn_);
    if (answer != CUDNN_STATUS_SUCCESS) status = cudnnGetErrorString(answer);
  }
  const int64_t free = memory_.info().free;  // updates the peak
  if (status.empty()) return;
  blas_ = library == Library::kBlas ? nullptr : blas_;
  dnn_ = library == Library::kDnn ? nullptr : dnn_;
  cudaGetLastError();
  // A device that has failed before answers with the same status as one without memory.
  HR_CHECK(cudaDeviceSynchronize());
  throw library_start_failure(library, status, fmt::format("{} free on the device", format_bytes(free)));
}

}  // namespace headroom::cuda
