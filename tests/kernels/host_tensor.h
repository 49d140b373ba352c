// Tensors in host memory for tests of kernels: aligned as an allocator would align them, with a guard after
// the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kernels/kernel.h"

namespace headroom::test {

class HostTensor {
 public:
  explicit HostTensor(const TensorSpec& spec)
      : spec_(spec),
        memory_(static_cast<std::byte*>(::operator new(bytes() + kGuard, kAlignment)), &release) {
    // Neither zero nor a usual number, so that elements that a kernel does not write are found.
    std::memset(memory_.get(), 0xA5, bytes() + kGuard);
  }
  HostTensor(const HostTensor& other) : HostTensor(other.spec_) {
    std::memcpy(memory_.get(), other.memory_.get(), bytes());
  }
  HostTensor& operator=(HostTensor other) {
    std::swap(spec_, other.spec_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  HostTensor(HostTensor&&) = default;

  const TensorSpec& spec() const { return spec_; }
  TensorView view() const { return {memory_.get(), spec_}; }
  size_t bytes() const { return static_cast<size_t>(spec_.bytes()); }
  int64_t elements() const { return spec_.shape.elements(); }
  template <typename T = float>
  T* data() const {
    return reinterpret_cast<T*>(memory_.get());
  }
  std::vector<double> values() const {
    std::vector<double> result(static_cast<size_t>(elements()));
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = value(i);
    }
    return result;
  }
  bool same_bytes(const HostTensor& other) const {
    return spec_ == other.spec_ && std::memcmp(memory_.get(), other.memory_.get(), bytes()) == 0;
  }
  bool guard_intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_.get()[bytes() + i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  static constexpr std::align_val_t kAlignment{256};
  static constexpr size_t kGuard = 128;
  double value(size_t i) const {
    switch (spec_.dtype) {
      case DType::kF32:
        return static_cast<double>(data<float>()[i]);
      case DType::kI32:
        return data<int32_t>()[i];
      case DType::kU8:
        return data<uint8_t>()[i];
      case DType::kBf16:
        return static_cast<double>(float_of_bf16(data<uint16_t>()[i]));
      case DType::kF16:
        return static_cast<double>(float_of_f16(data<uint16_t>()[i]));
    }
    return 0;
  }
  static void release(std::byte* memory) { ::operator delete(memory, kAlignment); }

  TensorSpec spec_;
  std::unique_ptr<std::byte, void (*)(std::byte*)> memory_;
};

template <typename T>
HostTensor tensor(const Shape& shape, const std::vector<T>& values) {
  HostTensor result({dtype_of<T>, shape});
  for (size_t i = 0; i < values.size(); ++i) result.data<T>()[i] = values[i];
  return result;
}

// Uniform in [low, high), the same on every machine.
inline HostTensor random_floats(const Shape& shape, uint32_t seed, float low = -2, float high = 2) {
  HostTensor result({DType::kF32, shape});
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < result.elements(); ++i) {
    result.data()[i] = low + (high - low) * static_cast<float>(engine() >> 8) * 0x1p-24f;
  }
  return result;
}

// Whole numbers in [low, high): ties on purpose.
template <typename T>
HostTensor random_whole(const Shape& shape, uint32_t seed, int low, int high) {
  HostTensor result({dtype_of<T>, shape});
  std::mt19937 engine(seed);
  for (int64_t i = 0; i < result.elements(); ++i) {
    result.data<T>()[i] =
        static_cast<T>(low + static_cast<int>(engine() % static_cast<uint32_t>(high - low)));
  }
  return result;
}

inline std::vector<TensorSpec> specs_of(const std::vector<HostTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const HostTensor& t : tensors) specs.push_back(t.spec());
  return specs;
}

inline std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors) {
  std::vector<TensorView> views;
  for (const HostTensor& t : tensors) views.push_back(t.view());
  return views;
}

// Runs the CPU kernel of `op` once; returns its outputs. Updates change `inputs`.
inline std::vector<HostTensor> run_op(const Op& op, const std::vector<HostTensor>& inputs) {
  const std::vector<TensorSpec> input_specs = specs_of(inputs);
  const std::vector<TensorSpec> output_specs = infer_outputs(op, input_specs);
  std::vector<HostTensor> outputs(output_specs.begin(), output_specs.end());
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(op, input_specs, output_specs);
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  kernel->run(views_of(inputs), views_of(outputs), workspace.data<void>(), {});
  if (!workspace.guard_intact()) throw std::logic_error("the kernel wrote behind its workspace");
  return outputs;
}

// A filter (KH,KW,C/groups,K) as (K,KH,KW,C/groups).
inline HostTensor filter_by_result(const HostTensor& filter) {
  return run_op(Transpose{{3, 0, 1, 2}}, {filter})[0];
}

}  // namespace headroom::test
