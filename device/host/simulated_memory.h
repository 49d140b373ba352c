// The memory of a simulated GPU: host memory with a GPU's capacity, pages and cost per driver call. Knows no
// context and no library; the GPU above takes their bytes from here.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/device_memory.h"
#include "device/host/host_pages.h"
#include "device/host/host_stream_pool.h"
#include "device/host/host_virtual_memory.h"
#include "device/host/memory_ledger.h"
#include "device/host/profiles.h"
#include "device/host/simulated_streams.h"

namespace headroom {

class SimulatedMemory final : public DeviceMemory {
 public:
  // `streams` are the GPU's, which release() waits for as cudaFree does. Throws InvalidArgument for a profile
  // whose sizes contradict each other.
  SimulatedMemory(const DeviceProfile& profile, SimulatedStreams& streams, Backing backing);

  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  // Copies on the default stream. Without backing, these throw DeviceError.
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes, Stream stream) override;
  void copy_to_host(void* host, const void* device, int64_t bytes, Stream stream) override;
  void* allocate_host(int64_t bytes) override;
  void release_host(void* pointer, int64_t bytes) noexcept override;
  VirtualMemory* virtual_memory() override {
    return virtual_memory_.is_supported() ? &virtual_memory_ : nullptr;
  }
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override { return granularity_bytes_; }
  std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(
      const StreamOrderedPoolSettings& settings) override;
  double driver_time_us() const override;

  // One driver call that takes `bytes` for good (a context, a handle, kernels); false if fewer than `bytes`
  // or `needed_bytes` are free.
  bool try_take(int64_t bytes, int64_t needed_bytes = 0);
  // Allocates a context, and releases all of it but `kept_bytes` at once.
  bool try_take_context(int64_t bytes, int64_t kept_bytes);

 private:
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
    MemoryUse use;
    const char* call;
    const void* host() const { return use.writes ? from : to; }
  };
  void queue_copy(Copy copy, Stream stream, bool host_waits);
  bool is_page_locked(const void* host, int64_t bytes) const;
  void require_backing(const char* call) const;
  bool take_small(int64_t bytes);
  void give_back_small(int64_t bytes) noexcept;
  void spend(double microseconds) noexcept;

  HostPages pages_;
  const int64_t granularity_bytes_;
  const double driver_call_us_;
  const double small_driver_call_us_;
  const double copy_bytes_per_us_;
  const StreamPoolCosts stream_pool_costs_;
  SimulatedStreams& streams_;
  MemoryLedger ledger_;
  HostVirtualMemory virtual_memory_;
  mutable std::mutex mutex_;
  int64_t small_bytes_ = 0;
  int64_t context_bytes_ = 0;
  double driver_time_us_ = 0;
  std::map<const std::byte*, int64_t> page_locked_;  // begin -> bytes, of host memory
};

}  // namespace headroom
