// The memory of one NVIDIA GPU through cudaMalloc and cudaFree or through virtual memory, and how much of it
// this process and others hold. Knows no strategy and no library.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "device/cuda/ballast.h"
#include "device/cuda/cuda_virtual_memory.h"
#include "device/cuda/nvml.h"
#include "device/device_memory.h"
#include "device/gpus.h"

namespace headroom::cuda {

class CudaMemory final : public DeviceMemory {
 public:
  // `card_bytes` is the card's total. Makes no context. Throws InvalidArgument for sizes that the card cannot
  // have.
  CudaMemory(const CudaSettings& settings, int64_t card_bytes, const std::string& pci_bus_id);

  // To be called as soon as the context exists; `is_new`: nothing of this process was on the device before.
  void note_context(bool is_new);
  // Allocates the card's memory beyond the settings. Call it after note_context(). Throws InvalidArgument if
  // the card has too little free memory for them.
  void hold_the_rest();

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override;
  void* allocate_host(int64_t bytes) override;
  void release_host(void* pointer, int64_t bytes) noexcept override;
  VirtualMemory* virtual_memory() override {
    return virtual_memory_.is_supported() ? &virtual_memory_ : nullptr;
  }
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  // Returns figures of the management library while there is no context, and after the driver has stopped
  // answering; without that library all memory counts as free. `process` is the driver's figure; if it has
  // none (some containers), all memory allocated since the context was made.
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override;
  // Time spent in allocations, releases, copies and calls of virtual memory, by the host's clock.
  double driver_time_us() const override { return driver_time_us_ + virtual_memory_.driver_time_us(); }

 private:
  void count(int64_t bytes);
  int64_t process_bytes(int64_t used_bytes) const;

  const CudaSettings settings_;
  const int64_t card_bytes_;
  const Nvml* const nvml_;
  const Nvml::Gpu gpu_;
  int64_t used_before_ = 0;  // in use on the card before the context was made
  bool has_context_ = false;
  int64_t context_bytes_ = 0;
  Ballast ballast_;
  mutable std::mutex mutex_;
  mutable int64_t peak_used_ = 0, peak_process_ = 0;
  int64_t held_ = 0;          // by try_allocate and virtual memory
  int64_t max_asked_at_ = 0;  // the most that was held when the driver was asked
  std::atomic<double> driver_time_us_ = 0;
  CudaVirtualMemory virtual_memory_;
};

}  // namespace headroom::cuda
