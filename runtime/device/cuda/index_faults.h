// Where kernels on a GPU report an index outside its range, for the host to find after it has waited for
// them: an error of the data, which leaves the context usable. Knows no kernel but by its op's name.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cuda {

// What a kernel sees of its place: one word of pinned host memory, kNoFault or the smallest of
// position << 32 | index. One word, so that the fault that is reported is the first by position and not the
// first to arrive.
using FaultSlot = unsigned long long*;
inline constexpr unsigned long long kNoFault = ~0ull;

class IndexFaults {
 public:
  // The place of one kernel, until it dies. Must not outlive the IndexFaults.
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
  // Throws the DeviceError that the CPU would throw for the first fault of the kernel that was made first
  // among those with a fault, and forgets all faults. Kernels that may report must have finished.
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
