#include "runtime/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_event.h"
#include "runtime/device/cuda/cuda_recording.h"
#include "runtime/device/cuda/cuda_stream_pool.h"
#include "runtime/device/cuda/current_device.h"
#include "runtime/device/cuda/driver.h"
#include "runtime/device/cuda/visible_gpus.h"
#include "runtime/device/library_failure.h"

namespace headroom {
namespace {

cudaDeviceProp properties_of(int ordinal) {
  const int count = cuda::count_gpus();
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

std::unique_ptr<Device> make_cuda_device(const CudaSettings& settings) {
  return std::make_unique<cuda::CudaDevice>(settings);
}

namespace cuda {

CudaDevice::CudaDevice(const CudaSettings& settings)
    : CudaDevice(settings, properties_of(settings.ordinal)) {}

CudaDevice::CudaDevice(const CudaSettings& settings, const cudaDeviceProp& properties)
    : ordinal_(settings.ordinal),
      name_(settings.name.empty() ? fmt::format("/device:GPU:{}", settings.ordinal) : settings.name),
      description_(properties.name),
      card_bytes_(static_cast<int64_t>(properties.totalGlobalMem)),
      compute_capability_(properties.major * 10 + properties.minor),
      multiprocessors_(properties.multiProcessorCount),
      memory_(settings, card_bytes_, pci_bus_id_of(settings.ordinal)) {}

CudaDevice::~CudaDevice() {
  if (dnn_ != nullptr) cudnnDestroy(dnn_);
  if (blas_ != nullptr) cublasDestroy(blas_);
}

void CudaDevice::initialise() {
  const std::lock_guard lock(mutex_);
  if (!initialised_) {
    make_context();
    memory_.hold_the_rest();
    initialised_ = true;
  }
  HR_CHECK(cudaSetDevice(ordinal_));  // each thread has its own current device
}

// By the driver's own call, whose name and status users know; the runtime library would only say that memory
// is out.
void CudaDevice::make_context() {
  const Driver& driver = Driver::instance();
  CUdevice device = 0;
  HR_CHECK(driver.init(0));
  HR_CHECK(driver.device_get(&device, ordinal_));
  CUcontext context = nullptr;
  const CUresult status = driver.retain_primary_context(&context, device);
  if (status == CUDA_SUCCESS) return;
  throw context_failure(ordinal_, driver.name_of(status), driver.description_of(status), card_bytes_);
}

void CudaDevice::start_library(Library library) {
  if (library == Library::kNone) return;
  initialise();
  const std::lock_guard lock(mutex_);
  if (library == Library::kBlas ? blas_ != nullptr : dnn_ != nullptr) return;
  const int64_t free_before = memory_.info().free;
  std::string status;
  if (library == Library::kBlas) {
    const cublasStatus_t answer = cublasCreate(&blas_);
    if (answer != CUBLAS_STATUS_SUCCESS) status = cublasGetStatusName(answer);
  } else {
    const cudnnStatus_t answer = cudnnCreate(&dnn_);
    if (answer != CUDNN_STATUS_SUCCESS) status = cudnnGetErrorString(answer);
  }
  const int64_t free = memory_.info().free;
  if (status.empty()) {
    library_bytes_[static_cast<size_t>(library)] = free_before - free;
    return;
  }
  blas_ = library == Library::kBlas ? nullptr : blas_;
  dnn_ = library == Library::kDnn ? nullptr : dnn_;
  cudaGetLastError();
  // A device that has failed before answers with the same status as one without memory.
  HR_CHECK(cudaDeviceSynchronize());
  throw library_start_failure(library, status, fmt::format("{} free on the device", format_bytes(free)));
}

Stream CudaDevice::new_stream() {
  initialise();
  cudaStream_t stream = nullptr;
  HR_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return {stream};
}

void CudaDevice::delete_stream(Stream stream) noexcept {
  cudaStreamDestroy(stream_of(stream));
}

// A null stream is the default one of the thread's current device, and events belong to theirs: what is done
// with either has to happen on this GPU.
void CudaDevice::wait(Stream stream, Stream other) {
  const CurrentDevice current(ordinal_);
  const CudaEvent event(stream_of(other));
  event.make_wait(stream_of(stream));
}

void CudaDevice::wait(Stream stream, const Event& event) {
  const CurrentDevice current(ordinal_);
  const auto* recorded = dynamic_cast<const CudaEvent*>(&event);
  if (recorded == nullptr) throw InvalidArgument("wait: the event is another device's");
  recorded->make_wait(stream_of(stream));
}

void CudaDevice::copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) {
  const CurrentDevice current(ordinal_);
  HR_CHECK(
      cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_of(stream)));
}

void CudaDevice::copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) {
  const CurrentDevice current(ordinal_);
  HR_CHECK(
      cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_of(stream)));
}

std::unique_ptr<Event> CudaDevice::record_event(Stream stream) {
  const CurrentDevice current(ordinal_);
  return std::make_unique<CudaEvent>(stream_of(stream));
}

std::unique_ptr<StreamOrderedPool> CudaDevice::make_stream_ordered_pool(
    const StreamOrderedPoolSettings& settings) {
  initialise();
  return std::make_unique<CudaStreamPool>(settings, ordinal_);
}

void CudaDevice::synchronize(Stream stream) {
  const CurrentDevice current(ordinal_);
  HR_CHECK(cudaStreamSynchronize(stream_of(stream)));
  index_faults_.throw_first();
}

// The two events are all that orders the default streams of two GPUs. Without access to each other's memory
// the driver copies through the host.
bool CudaDevice::copy_from(Device& other, void* to, const void* from, int64_t bytes) {
  auto* const source = dynamic_cast<CudaDevice*>(&other);
  if (source == nullptr) return false;
  const std::unique_ptr<Event> written = source->record_event({});
  std::unique_ptr<Event> copied;
  {
    const CurrentDevice current(ordinal_);
    static_cast<const CudaEvent&>(*written).make_wait(nullptr);
    HR_CHECK(cudaMemcpyPeerAsync(to, ordinal_, from, source->ordinal_, static_cast<size_t>(bytes), nullptr));
    copied = record_event({});
  }
  const CurrentDevice current(source->ordinal_);
  static_cast<const CudaEvent&>(*copied).make_wait(nullptr);
  return true;
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
