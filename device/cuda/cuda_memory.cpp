#include "device/cuda/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/errors.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_stream_pool.h"
#include "device/cuda/current_device.h"

namespace headroom::cuda {

CudaMemory::CudaMemory(const CudaSettings& settings, int64_t card_bytes, const std::string& pci_bus_id)
    : settings_(settings),
      card_bytes_(card_bytes),
      nvml_(Nvml::instance()),
      gpu_(nvml_ == nullptr ? nullptr : nvml_->find(pci_bus_id)),
      virtual_memory_(settings.ordinal, [this](int64_t bytes) { count(bytes); }) {
  const int64_t total = settings.total_bytes.value_or(card_bytes);
  if (total <= 0 || total > card_bytes) {
    throw InvalidArgument(
        fmt::format("device-memory of {}: the card has {}", format_bytes(total), format_bytes(card_bytes)));
  }
  const int64_t others = settings.others_bytes.value_or(0);
  if (others < 0 || others > total) {
    throw InvalidArgument(
        fmt::format("others cannot hold {} of a device of {}", format_bytes(others), format_bytes(total)));
  }
  if (gpu_ == nullptr) return;
  if (const auto memory = nvml_->memory(gpu_)) used_before_ = memory->used;
}

void CudaMemory::note_context(bool is_new) {
  {
    const std::lock_guard lock(mutex_);
    has_context_ = true;
  }
  const int64_t process_bytes = info().process;
  const std::lock_guard lock(mutex_);
  if (is_new) context_bytes_ = process_bytes;
}

void CudaMemory::hold_the_rest() {
  const CurrentDevice device(settings_.ordinal);
  if (!settings_.total_bytes && !settings_.others_bytes) return;
  const int64_t total = settings_.total_bytes.value_or(card_bytes_);
  const int64_t others = settings_.others_bytes.value_or(0);
  size_t free = 0, card = 0;
  HR_CHECK(cudaMemGetInfo(&free, &card));
  const int64_t context = process_bytes(card_bytes_ - static_cast<int64_t>(free));
  const int64_t wanted = total - others - context;
  const std::string asked =
      fmt::format("device-memory of {}, {} of it held by others", format_bytes(total), format_bytes(others));
  if (wanted < 0)
    throw InvalidArgument(fmt::format("{}: the context alone takes {}", asked, format_bytes(context)));
  if (wanted > static_cast<int64_t>(free)) {
    throw InvalidArgument(fmt::format("{}: beside a context of {} only {} of the card are free", asked,
                                      format_bytes(context), format_bytes(static_cast<int64_t>(free))));
  }
  ballast_.leave(wanted);
}

void* CudaMemory::try_allocate(int64_t bytes) {
  void* pointer = nullptr;
  {
    const TimedCall timed(settings_.ordinal, driver_time_us_);
    const cudaError_t status = cudaMalloc(&pointer, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // no room is an answer here, not an error to be found later
      return nullptr;
    }
    HR_CHECK(status);
  }
  count(bytes);
  return pointer;
}

void CudaMemory::release(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  count(-bytes);
  const TimedCall timed(settings_.ordinal, driver_time_us_);
  cudaFree(pointer);
}

// Call it after taking bytes and before giving them back. Keeps the peaks. The driver takes longer to answer
// than to map a page, so it is asked only when a new peak is about to end.
void CudaMemory::count(int64_t bytes) {
  bool leaves_peak = false;
  {
    const std::lock_guard lock(mutex_);
    leaves_peak = bytes < 0 && held_ > max_asked_at_;
    if (leaves_peak) max_asked_at_ = held_;
  }
  if (leaves_peak) info();
  const std::lock_guard lock(mutex_);
  held_ += bytes;
}

void CudaMemory::copy_to_device(void* device, const void* host, int64_t bytes) {
  const TimedCall timed(settings_.ordinal, driver_time_us_);
  HR_CHECK(cudaMemcpy(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  // From pageable memory cudaMemcpy returns when the bytes are staged, perhaps before they are on the device
  // ("API synchronization behavior" of the CUDA runtime). Our streams do not wait for the default one.
  HR_CHECK(cudaStreamSynchronize(nullptr));
}

void CudaMemory::copy_to_host(void* host, const void* device, int64_t bytes) {
  const TimedCall timed(settings_.ordinal, driver_time_us_);
  HR_CHECK(cudaMemcpy(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

void CudaMemory::copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) {
  const CurrentDevice current(settings_.ordinal);
  HR_CHECK(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                           static_cast<cudaStream_t>(stream.handle)));
}

void CudaMemory::copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) {
  const CurrentDevice current(settings_.ordinal);
  HR_CHECK(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                           static_cast<cudaStream_t>(stream.handle)));
}

std::unique_ptr<StreamOrderedPool> CudaMemory::make_stream_ordered_pool(
    const StreamOrderedPoolSettings& settings) {
  return std::make_unique<CudaStreamPool>(settings, settings_.ordinal);
}

void* CudaMemory::allocate_host(int64_t bytes) {
  const CurrentDevice device(settings_.ordinal);
  void* pointer = nullptr;
  HR_CHECK(cudaHostAlloc(&pointer, static_cast<size_t>(bytes), cudaHostAllocPortable));
  return pointer;
}

void CudaMemory::release_host(void* pointer, int64_t) noexcept {
  cudaFreeHost(pointer);
}

MemoryInfo CudaMemory::info() const {
  const std::lock_guard lock(mutex_);
  MemoryInfo info;
  info.total = settings_.total_bytes.value_or(card_bytes_);
  if (!has_context_ && (settings_.total_bytes || settings_.others_bytes)) {
    info.others = settings_.others_bytes.value_or(0);
    info.free = info.total - info.others;
  } else {
    std::optional<CurrentDevice> device;  // to set it would make the context
    if (has_context_) device.emplace(settings_.ordinal);
    size_t free = 0, card = 0;
    if (has_context_ && cudaMemGetInfo(&free, &card) == cudaSuccess) {
      info.free = static_cast<int64_t>(free);
    } else {
      const auto memory = gpu_ == nullptr ? std::nullopt : nvml_->memory(gpu_);
      info.free = memory ? memory->free : card_bytes_;
    }
    info.process = has_context_ ? process_bytes(card_bytes_ - info.free) : 0;
    info.free = std::min(info.free, info.total - info.process);
    info.others = info.used() - info.process;
  }
  peak_used_ = std::max(peak_used_, info.used());
  peak_process_ = std::max(peak_process_, info.process);
  info.context = context_bytes_;
  info.peak_used = peak_used_;
  info.peak_process = peak_process_;
  return info;
}

int64_t CudaMemory::granularity_bytes() const {
  return 2 * kMiB;  // cudaMalloc's on every GPU since Pascal
}

// The part of the card's `used_bytes` that this process holds, without the ballast.
int64_t CudaMemory::process_bytes(int64_t used_bytes) const {
  const auto own = gpu_ == nullptr ? std::nullopt : nvml_->own_bytes(gpu_);
  return std::max<int64_t>(0, own.value_or(used_bytes - used_before_) - ballast_.bytes());
}

}  // namespace headroom::cuda
