// CUDA's current device is each thread's own: this sets it for a scope. Knows no device.
#pragma once

#include <cuda_runtime.h>

namespace headroom::cuda {

class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    changed_ =
        cudaGetDevice(&before_) == cudaSuccess && before_ != ordinal && cudaSetDevice(ordinal) == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace headroom::cuda
