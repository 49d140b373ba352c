// The kernel's own limit on device memory: cgroup v2 with the controller dmem (Linux 6.14), in which NVIDIA's
// driver takes part from CUDA 13.4 on and names a card nvidia/<PCI address>/vidmem
// (docs.nvidia.com/deploy/mps, "MPS v3 Memory Partitioning"). It needs the rights of root.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace headroom {

struct DeviceLimit {
  int64_t most = 0;        // dmem.max: what would exceed it is refused
  int64_t guaranteed = 0;  // dmem.min; 0: nothing
};

// A group for one command and what it starts, beside the group of this process, so that the limits above hold
// as before. Removed when it goes out of scope, if it is empty.
class DeviceCgroup {
 public:
  // Empty where the kernel, the driver or the rights do not offer it. `limit_of` gets a PCI address,
  // "0000:1b:00.0"; without a result the card has no limit.
  static std::optional<DeviceCgroup> make(
      const std::function<std::optional<DeviceLimit>(const std::string&)>& limit_of,
      const std::string& root = "/sys/fs/cgroup", const std::string& own = "/proc/self/cgroup");
  DeviceCgroup(DeviceCgroup&& other) noexcept;
  DeviceCgroup(const DeviceCgroup&) = delete;
  DeviceCgroup& operator=(const DeviceCgroup&) = delete;
  ~DeviceCgroup();

  // A process that writes 0 to it belongs to the group.
  std::string processes_file() const { return path_ + "/cgroup.procs"; }

 private:
  explicit DeviceCgroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace headroom
