// The argument of a function that computes an op. Knows no op and no device.
#pragma once

#include <span>

#include "runtime/base/tensor.h"

namespace headroom {

// The memory of one run of a kernel.
struct KernelCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  void* workspace = nullptr;

  template <typename T = float>
  const T* in(size_t i) const {
    return inputs[i].as<const T>();
  }
  // An input that the op changes.
  template <typename T = float>
  T* mutated(size_t i) const {
    return inputs[i].as<T>();
  }
  template <typename T = float>
  T* out(size_t i = 0) const {
    return outputs[i].as<T>();
  }
  // The workspace as an array.
  template <typename T>
  T* scratch() const {
    return static_cast<T*>(workspace);
  }
};

}  // namespace headroom
