// Page-locked host memory in the role of a device's memory: values lie there while others need the device's
// own, and the device copies them at full speed. Knows no tensor and no strategy.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "device/device.h"

namespace headroom {

class PinnedHostMemory final : public DeviceMemory {
 public:
  // `device` must outlive this.
  explicit PinnedHostMemory(DeviceMemory& device) : device_(device) {}

  // Throws DeviceError if the host has none, because no change on the device would help.
  void* try_allocate(int64_t bytes) override;
  void release(void* pointer, int64_t bytes) noexcept override;
  using DeviceMemory::copy_to_device;
  using DeviceMemory::copy_to_host;
  void copy_to_device(void* to, const void* from, int64_t bytes) override;
  void copy_to_host(void* to, const void* from, int64_t bytes) override;
  MemoryInfo info() const override;
  int64_t granularity_bytes() const override { return 4096; }  // a page of the host
  bool is_host_memory() const override { return true; }

 private:
  DeviceMemory& device_;
  mutable std::mutex mutex_;
  int64_t held_ = 0, peak_ = 0;
};

// A device with its page-locked host memory instead of its own. All other parts are the device's.
class PinnedHost final : public Device {
 public:
  // `device` must outlive this.
  PinnedHost(Device& device, std::string name)
      : device_(device), info_{std::move(name), "page-locked host memory"}, memory_(device.memory()) {}

  const DeviceInfo& info() const override { return info_; }
  void initialize() override { device_.initialize(); }
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return device_.streams(); }
  DeviceLibraries& libraries() override { return device_.libraries(); }
  DeviceCaptures& captures() override { return device_.captures(); }
  KernelTarget kernel_target() override { return device_.kernel_target(); }

 private:
  Device& device_;
  const DeviceInfo info_;
  PinnedHostMemory memory_;
};

}  // namespace headroom
