// Initial values of an imported model's variables: the file's weights in the order of axes that our ops need,
// or random ones if the file has none. Knows no op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/initializer.h"
#include "runtime/onnx/importer.h"

namespace headroom::onnx {

// The bytes of a tensor with its axes in another order.
std::vector<std::byte> permuted_bytes(std::span<const std::byte> bytes, const TensorSpec& spec,
                                      const Axes& order);

// Bytes of whole numbers of 8 or 4 bits, with signed ones moved by half their range so that none is negative.
std::vector<std::byte> unsigned_bytes(ElementType type, std::span<const std::byte> stored);

// The first value of a source's variable, whose order is set. `model` is that of the source's tensor.
Initializer first_value(const Source& source, const Model& model, uint64_t seed);

}  // namespace headroom::onnx
