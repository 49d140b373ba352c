// A copy of a host tensor in a device's memory for tests of kernels, with a guard on both sides and, if
// requested, at an address that no vector access supports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "device/device.h"
#include "tests/kernels/host_tensor.h"

namespace headroom::test {

class DeviceTensor {
 public:
  // Places the tensor `shift` elements after an address aligned to 256 bytes.
  DeviceTensor(Device& device, const HostTensor& value, int64_t shift = 0)
      : memory_(device.memory()),
        spec_(value.spec()),
        start_(kGuard + static_cast<size_t>(shift * element_bytes(value.spec().dtype))),
        base_(static_cast<std::byte*>(memory_.try_allocate(all_bytes()))) {
    if (base_ == nullptr) throw std::runtime_error("no room on the GPU for the test's tensors");
    std::vector<std::byte> image(static_cast<size_t>(all_bytes()), kPattern);
    std::copy_n(value.data<std::byte>(), value.bytes(), image.data() + start_);
    memory_.copy_to_device(base_, image.data(), all_bytes());
  }
  ~DeviceTensor() { memory_.release(base_, all_bytes()); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  TensorView view() const { return {base_ + start_, spec_}; }
  // Returns the present bytes as a tensor of that spec. Throws std::logic_error if a guard was overwritten.
  HostTensor read_as(const TensorSpec& spec) const {
    std::vector<std::byte> image(static_cast<size_t>(all_bytes()));
    memory_.copy_to_host(image.data(), base_, all_bytes());
    const auto begin = image.begin() + static_cast<std::ptrdiff_t>(start_), end = begin + spec_.bytes();
    const auto untouched = [](std::byte b) { return b == kPattern; };
    if (!std::all_of(image.begin(), begin, untouched) || !std::all_of(end, image.end(), untouched)) {
      throw std::logic_error("the kernel wrote beside a tensor");
    }
    HostTensor result(spec);
    std::copy_n(begin, result.bytes(), result.data<std::byte>());
    return result;
  }
  HostTensor read() const { return read_as(spec_); }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr std::byte kPattern{0x5A};
  int64_t all_bytes() const { return static_cast<int64_t>(start_ + kGuard) + spec_.bytes(); }

  DeviceMemory& memory_;
  TensorSpec spec_;
  size_t start_;
  std::byte* base_;
};

}  // namespace headroom::test
