// Sets the calling thread's current CUDA device for a scope. Knows no device.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>

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

// Sets the current device for a driver call and adds the call's time, by the host's clock, to `us`.
class TimedCall {
 public:
  TimedCall(int ordinal, std::atomic<double>& us) : us_(us), device_(ordinal) {}
  ~TimedCall() { us_ += std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<double>& us_;
  const CurrentDevice device_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace headroom::cuda
