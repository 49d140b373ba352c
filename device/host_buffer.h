// Host memory for copies to and from a device, zeroed at the start. Knows no tensor.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "device/device_memory.h"

namespace headroom {

class HostBuffer {
 public:
  // Allocates `bytes` (>= 0) of the memory that copies fastest to `memory`, which must outlive this. Throws
  // as DeviceMemory::allocate_host does.
  HostBuffer(DeviceMemory& memory, int64_t bytes) : memory_(&memory), bytes_(bytes) {
    if (bytes == 0) return;
    data_ = static_cast<std::byte*>(memory.allocate_host(bytes));
    std::memset(data_, 0, static_cast<size_t>(bytes));
  }
  HostBuffer(HostBuffer&& other) noexcept
      : memory_(other.memory_),
        bytes_(std::exchange(other.bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  HostBuffer& operator=(HostBuffer&&) = delete;
  ~HostBuffer() {
    if (data_ != nullptr) memory_->release_host(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return static_cast<size_t>(bytes_); }
  bool empty() const { return bytes_ == 0; }

 private:
  DeviceMemory* memory_;
  int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace headroom
