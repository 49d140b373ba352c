#include "runtime/onnx/host_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "kernels/kernel.h"

namespace headroom::onnx {
namespace {

constexpr std::align_val_t kAlignment{256};  // as an allocator gives it

std::shared_ptr<std::byte> allocate(int64_t bytes) {
  auto* const memory =
      static_cast<std::byte*>(::operator new(static_cast<size_t>(std::max<int64_t>(1, bytes)), kAlignment));
  return {memory, [](std::byte* old) { ::operator delete(old, kAlignment); }};
}

}  // namespace

HostTensor::HostTensor(const TensorSpec& spec) : spec_(spec), bytes_(allocate(spec.bytes())) {
  std::memset(bytes_.get(), 0, static_cast<size_t>(spec.bytes()));
}

HostTensor::HostTensor(const TensorSpec& spec, std::span<const std::byte> bytes)
    : spec_(spec), bytes_(allocate(spec.bytes())) {
  const size_t size = static_cast<size_t>(spec.bytes()), given = std::min(bytes.size(), size);
  std::copy_n(bytes.begin(), given, bytes_.get());
  std::fill_n(bytes_.get() + given, size - given, std::byte{});
}

HostTensor HostTensor::over(const TensorSpec& spec, std::span<const std::byte> bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(element_bytes(spec.dtype)) != 0)
    return {spec, bytes};
  HostTensor result;
  result.spec_ = spec;
  result.bytes_ = {std::shared_ptr<std::byte>(), const_cast<std::byte*>(bytes.data())};
  return result;
}

HostTensor HostTensor::with_shape(const Shape& shape) const {
  HostTensor result = *this;
  result.spec_.shape = shape;
  return result;
}

HostTensor integers_tensor(const std::vector<int64_t>& values) {
  HostTensor result({DType::kI32, {static_cast<int64_t>(values.size())}});
  std::transform(values.begin(), values.end(), result.data<int32_t>().begin(), [](int64_t value) {
    return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX));
  });
  return result;
}

HostTensor float_tensor(const Shape& shape, const std::vector<float>& values) {
  return {{DType::kF32, shape}, std::as_bytes(std::span(values))};
}

std::vector<int64_t> integers_of(const HostTensor& tensor) {
  std::vector<int64_t> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.spec().dtype) {
      case DType::kF32: {
        const float number = tensor.data<float>()[i];
        constexpr float kLargest = 9e18f;
        values[i] = std::isnan(number) ? 0 : static_cast<int64_t>(std::clamp(number, -kLargest, kLargest));
        break;
      }
      case DType::kI32:
        values[i] = tensor.data<int32_t>()[i];
        break;
      case DType::kU8:
        values[i] = tensor.data<uint8_t>()[i];
        break;
      case DType::kBf16:
      case DType::kF16:
        break;  // no file's tensor becomes one
    }
  }
  return values;
}

HostTensor compute(const Op& op, std::span<const HostTensor> inputs) {
  std::vector<TensorSpec> specs;
  std::vector<TensorView> views;
  for (const HostTensor& input : inputs) {
    specs.push_back(input.spec());
    views.push_back(input.view());
  }
  const Outputs outputs = infer_outputs(op, specs);
  const std::vector<HostTensor> results(outputs.begin(), outputs.end());
  std::vector<TensorView> written;
  for (const HostTensor& result : results) written.push_back(result.view());
  const std::unique_ptr<Kernel> kernel = make_cpu_kernel(op, specs, outputs);
  const HostTensor workspace({DType::kU8, {kernel->workspace_bytes()}});
  kernel->run(views, written, workspace.view().data, {});
  return results.front();
}

HostTensor compacted(const HostTensor& tensor) {
  HostTensor result = tensor;
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    const Shape& shape = result.shape();
    const int64_t extent = shape[axis];
    if (extent < 2 || result.elements() == 0) continue;
    // (outer, extent, inner bytes)
    int64_t inner = element_bytes(tensor.spec().dtype);
    for (int after = axis + 1; after < shape.rank(); ++after) inner *= shape[after];
    const int64_t block = extent * inner, outer = result.spec().bytes() / block;
    const std::byte* const data = result.bytes().data();
    bool is_equal = true;
    for (int64_t i = 0; i < outer && is_equal; ++i) {
      // Each slice equals the next one exactly if the block equals itself one slice later.
      is_equal =
          std::memcmp(data + i * block, data + i * block + inner, static_cast<size_t>(block - inner)) == 0;
    }
    if (!is_equal) continue;
    const HostTensor smaller({tensor.spec().dtype, shape.with(axis, 1)});
    for (int64_t i = 0; i < outer; ++i) {
      std::memcpy(static_cast<std::byte*>(smaller.view().data) + i * inner, data + i * block,
                  static_cast<size_t>(inner));
    }
    result = smaller;
  }
  return result;
}

}  // namespace headroom::onnx
