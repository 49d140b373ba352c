// Storage of a step in 16 bits: a pass over a finished graph that says which values are stored so, and casts
// the weights. Knows no device and no plan.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/enum_names.h"
#include "runtime/graph/graph.h"

namespace headroom {

// The storage type of activations, their gradients and the weights that products read.
enum class Precision : uint8_t { kF32, kBf16, kF16 };
constexpr auto value_names(Precision) {
  return std::to_array<std::string_view>({"f32", "bf16", "f16"});
}

// Stores results in 16 bits, as mixed-precision training does (Micikevicius et al. 2018): the operands and
// results of products and convolutions, and values computed from them. Sums, powers, logarithms, the
// statistics of normalizations, the loss and scalars stay f32, and so do variables that an optimizer updates:
// they are the f32 masters, and products read a copy of the weights in 16 bits that each step casts anew. A
// variable that no node changes and that all its readers want in 16 bits, such as a weight of a forward pass,
// is stored in 16 bits. Values that the caller fetches (`keep`) are the stored numbers as f32. Does nothing
// for f32.
void store_in(Graph& graph, Precision precision, std::span<const Value> keep);

}  // namespace headroom
