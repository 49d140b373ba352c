// Consecutive parts of a kernel's workspace. Knows no op and no device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace headroom {

// Hands out parts of a workspace, each aligned to 256 bytes. For a null workspace it hands out null, and
// counts the bytes that a kernel must request.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(void* workspace) : begin_(static_cast<std::byte*>(workspace)) {}

  template <typename T>
  T* take(int64_t count) {
    T* const part = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + taken_bytes_);
    taken_bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), 256);
    return part;
  }
  int64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::byte* const begin_;
  int64_t taken_bytes_ = 0;
};

}  // namespace headroom
