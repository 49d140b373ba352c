// The memory of one NVIDIA GPU through cudaMalloc and cudaFree or through virtual memory, and what is known
// of who holds how much of it. Knows no strategy and no library.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/device/cuda/ballast.h"
#include "runtime/device/cuda/cuda_virtual_memory.h"
#include "runtime/device/cuda/nvml.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/gpus.h"

namespace headroom::cuda {

class CudaMemory final : public DeviceMemory {
 public:
  // `card_bytes` is the card's total. Makes no context. Throws InvalidArgument for sizes that the card cannot
  // have.
  CudaMemory(const CudaSettings& settings, int64_t card_bytes, const std::string& pci_bus_id);

  // To be called once the context exists: takes what the card has beyond the settings. Throws InvalidArgument
  // when the card has less free than they ask for.
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
  // Before there is a context, and when the driver does not answer any more, from the management library; all
  // is free where that is missing, too. `process` is what the driver has for this process; where it cannot
  // tell (some containers) all that came since the context was made.
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override;
  // Time spent in allocations, releases, copies and calls of virtual memory, by the host's clock.
  double driver_time_us() const override { return driver_time_us_ + virtual_memory_.driver_time_us(); }

 private:
  class Timed;
  void count(int64_t bytes);
  int64_t process_bytes(int64_t used_bytes) const;

  const CudaSettings settings_;
  const int64_t card_bytes_;
  const Nvml* const nvml_;
  const Nvml::Gpu gpu_;
  int64_t used_before_ = 0;  // of the card, when the context was not there yet
  bool has_context_ = false;
  Ballast ballast_;
  mutable std::mutex mutex_;
  mutable int64_t peak_used_ = 0, peak_process_ = 0;
  int64_t held_ = 0;           // by try_allocate and virtual memory
  int64_t most_asked_at_ = 0;  // the most that was held when the driver was asked
  std::atomic<double> driver_time_us_ = 0;
  CudaVirtualMemory virtual_memory_;
};

}  // namespace headroom::cuda
