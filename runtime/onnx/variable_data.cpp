#include "runtime/onnx/variable_data.h"

#include <cmath>

namespace headroom::onnx {
namespace {

// Initializes as layers do: matrices and filters as in Glorot, Bengio 2010, scales and variances 1, the rest
// 0.
Initializer drawn(const Source& source, uint64_t seed) {
  if (!is_float(source.type)) return zeros();
  const std::string& name = source.name;
  const auto ends_with = [&](std::string_view end) { return name.ends_with(end); };
  if (source.shape.rank() < 2) {
    const bool is_one = ends_with("var") || ends_with("variance") || ends_with("weight") ||
                        ends_with("scale") || ends_with("gamma");
    return is_one ? ones() : zeros();
  }
  const auto elements = static_cast<float>(source.shape.elements());
  const auto fans =
      elements / static_cast<float>(source.shape[0]) + elements / static_cast<float>(source.shape[1]);
  const float limit = fans > 0 ? std::sqrt(6 / fans) : 0;
  return uniform(-limit, limit, seed);
}

}  // namespace

std::vector<std::byte> permuted_bytes(std::span<const std::byte> bytes, const TensorSpec& spec,
                                      const Axes& order) {
  if (is_in_order(order)) return {bytes.begin(), bytes.end()};
  const HostTensor moved = compute(Transpose{order}, std::vector{HostTensor::over(spec, bytes)});
  return {moved.bytes().begin(), moved.bytes().end()};
}

std::vector<std::byte> unsigned_bytes(ElementType type, std::span<const std::byte> stored) {
  const std::byte sign = type == ElementType::kInt8   ? std::byte{0x80}
                         : type == ElementType::kInt4 ? std::byte{0x88}
                                                      : std::byte{0};
  std::vector<std::byte> bytes(stored.begin(), stored.end());
  for (std::byte& byte : bytes) byte ^= sign;
  return bytes;
}

Initializer first_value(const Source& source, const Model& model, uint64_t seed) {
  if (source.first) return *source.first;
  if (source.number) return constant_of(*source.number);
  if (source.limit) return uniform(-*source.limit, *source.limit, seed);
  const Tensor* tensor = source.tensor;
  if (source.is_stored && !tensor->is_absent)
    return given([tensor] { return unsigned_bytes(tensor->type, tensor->data); });
  if (tensor == nullptr || tensor->is_absent) return drawn(source, seed);
  if (is_stored_as_ours(tensor->type) && is_in_order(source.order)) {
    for (const std::shared_ptr<const MappedFile>& file : model.files) {
      if (file->holds(tensor->data)) return mapped(file, tensor->data);
    }
  }
  return given([tensor, shape = source.shape, order = source.order] {
    const TensorSpec spec{dtype_of_element(tensor->type), shape};
    if (is_stored_as_ours(tensor->type)) return permuted_bytes(tensor->data, spec, order);
    std::vector<std::byte> stored = convert_elements(tensor->type, tensor->data, tensor->elements());
    return is_in_order(order) ? stored : permuted_bytes(stored, spec, order);
  });
}

}  // namespace headroom::onnx
