// Floats in the memory of a device.
#pragma once

#include <vector>

#include "device/device.h"

namespace headroom {

class DeviceFloats {
 public:
  DeviceFloats(Device& device, const std::vector<float>& values)
      : memory_(device.memory()), bytes_(bytes_of(values)) {
    if (bytes_ == 0) return;
    data_ = static_cast<float*>(memory_.try_allocate(bytes_));
    memory_.copy_to_device(data_, values.data(), bytes_);
  }
  ~DeviceFloats() {
    if (data_ != nullptr) memory_.release(data_, bytes_);
  }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  float* data() const { return data_; }
  std::vector<float> read() const {
    std::vector<float> values(static_cast<size_t>(bytes_) / sizeof(float));
    if (bytes_ > 0) memory_.copy_to_host(values.data(), data_, bytes_);
    return values;
  }

 private:
  static int64_t bytes_of(const std::vector<float>& values) {
    return static_cast<int64_t>(values.size() * sizeof(float));
  }
  DeviceMemory& memory_;
  int64_t bytes_;
  float* data_ = nullptr;
};

}  // namespace headroom
