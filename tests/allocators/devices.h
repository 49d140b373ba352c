// The devices that allocator tests run on, and checks that several of them share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "allocators/allocator.h"
#include "device/device.h"
#include "device/faulty/faulty_device.h"
#include "device/host/profiles.h"

namespace headroom {

enum class TestDeviceKind { kCpu, kSimulated, kFaultySimulated, kCuda };

// A device of 512 MiB, with a faulty twin around it if requested; a real GPU has its own size.
class TestDevice {
 public:
  // Throws InvalidArgument for kCuda if there is none.
  explicit TestDevice(TestDeviceKind kind);

  Device& device() { return faulty_ ? static_cast<Device&>(*faulty_) : *real_; }
  // Returns the device's memory without injected faults, to read its contents.
  DeviceMemory& contents() { return real_->memory(); }
  // Only of a kFaultySimulated.
  FaultInjector& faults() { return faulty_->faults(); }

 private:
  std::unique_ptr<Device> real_;
  std::unique_ptr<FaultyDevice> faulty_;
};

// A small GPU for tests: 512 MiB, of which other processes use 64 and the context 32.
DeviceProfile small_profile();

// Random allocations and deallocations. Each block is filled with a pattern of its own, which is checked
// before the block is freed. Overlapping or misplaced blocks show as damaged bytes.
class RandomLoad {
 public:
  RandomLoad(Allocator& allocator, DeviceMemory& memory, uint32_t seed, int64_t largest_bytes,
             size_t most_blocks, Stream stream = {});

  // One allocation or deallocation; false when a pattern was damaged. Out of memory frees a block instead.
  bool step();
  // Frees all live blocks; returns false if a pattern was damaged.
  bool finish();

  int64_t live_bytes() const { return live_bytes_; }
  int64_t allocations() const { return allocations_; }

 private:
  struct Live {
    void* pointer;
    int64_t bytes;
    uint64_t pattern;
  };

  uint32_t random();
  void allocate(int64_t bytes);
  bool free_one(size_t index);

  Allocator& allocator_;
  DeviceMemory& memory_;
  uint64_t state_;
  const int64_t largest_bytes_;
  const size_t most_blocks_;
  const Stream stream_;
  std::vector<Live> live_;
  int64_t live_bytes_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace headroom
