// Tensors in host memory, and ops computed on them while a model is imported. Knows no graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "ops/ops.h"

namespace headroom::onnx {

// A tensor whose bytes are shared by its copies. Only its maker writes it, once.
class HostTensor {
 public:
  HostTensor() : HostTensor(TensorSpec{}) {}
  explicit HostTensor(const TensorSpec& spec);
  HostTensor(const TensorSpec& spec, std::span<const std::byte> bytes);
  // Over bytes of the caller, as many as the tensor has, which outlive it and its copies. Only to be read. A
  // copy where they lie at no address of that type, as in a file.
  static HostTensor over(const TensorSpec& spec, std::span<const std::byte> bytes);

  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  int64_t elements() const { return spec_.shape.elements(); }
  std::span<const std::byte> bytes() const { return {bytes_.get(), static_cast<size_t>(spec_.bytes())}; }
  template <typename T>
  std::span<T> data() const {
    return {reinterpret_cast<T*>(bytes_.get()), static_cast<size_t>(elements())};
  }
  TensorView view() const { return {bytes_.get(), spec_}; }
  // Returns the same bytes under another shape with as many elements.
  HostTensor with_shape(const Shape& shape) const;

 private:
  TensorSpec spec_;
  std::shared_ptr<std::byte> bytes_;
};

HostTensor integers_tensor(const std::vector<int64_t>& values);  // i32, rank 1; saturates
HostTensor float_tensor(const Shape& shape, const std::vector<float>& values);
// All elements as integers; floats lose their fraction.
std::vector<int64_t> integers_of(const HostTensor& tensor);

// The first output of the op, computed on the CPU. Throws InvalidArgument as infer_outputs does, and
// DeviceError as kernels do.
HostTensor compute(const Op& op, std::span<const HostTensor> inputs);
// Shrinks axes along which all elements are equal to extent 1; the result broadcasts to the same tensor.
HostTensor compacted(const HostTensor& tensor);

}  // namespace headroom::onnx
