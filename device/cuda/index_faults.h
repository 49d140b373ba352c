// Slots in which kernels on a GPU report an index out of range. The host reads them after it has waited for
// the kernels; such an error of the data leaves the context usable. Knows kernels only by their op's name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cuda {

// One word of pinned host memory: kNoFault or the smallest position << 32 | index. One word, so that the
// reported fault is the first by position and not the first to arrive.
using FaultSlot = unsigned long long*;
inline constexpr unsigned long long kNoFault = ~0ull;

class IndexFaults {
 public:
  // The slot of one kernel, released with it. Must not outlive the IndexFaults.
  class Site {
   public:
    Site(Site&& other) noexcept;
    Site& operator=(Site&&) = delete;
    ~Site();
    // The word as the device addresses it.
    FaultSlot slot() const { return slot_; }

   private:
    friend class IndexFaults;
    Site(IndexFaults* faults, size_t number, FaultSlot slot)
        : faults_(faults), number_(number), slot_(slot) {}
    IndexFaults* faults_;
    size_t number_;
    FaultSlot slot_;
  };

  IndexFaults() = default;
  ~IndexFaults();
  IndexFaults(const IndexFaults&) = delete;
  IndexFaults& operator=(const IndexFaults&) = delete;

  // A place for one kernel, whose indices must be in [0, extent). The current device must be the kernel's.
  // Throws DeviceError when the driver has no pinned memory.
  Site add(std::string_view op_name, std::string_view what, int64_t extent);
  // If there are faults, throws the DeviceError that the CPU would throw for the first one of the oldest
  // kernel, and clears all. Kernels that may report must have finished.
  void throw_first();

 private:
  static constexpr size_t kSlotsPerPage = 512;  // 4 KiB

  struct Kernel {
    bool live = false;
    std::string op_name, what;
    int64_t extent = 0;
  };
  FaultSlot host_slot(size_t number) const { return &pages_[number / kSlotsPerPage][number % kSlotsPerPage]; }
  void remove(size_t number) noexcept;

  std::mutex mutex_;
  std::vector<FaultSlot> pages_, device_pages_;
  std::vector<Kernel> kernels_;
};

}  // namespace headroom::cuda
