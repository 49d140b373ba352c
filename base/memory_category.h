// Categories of memory blocks in recordings and their views. Knows no tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace headroom {

enum class MemoryCategory : uint8_t {
  kOther,  // not known
  kWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kInputs,  // data, and counters
  kWorkspace,
  kLibrary,  // workspaces of libraries; context and kernels are in no block
};

// In the order of the enumeration; a recording holds the position.
inline constexpr std::array<std::string_view, 8> kMemoryCategoryNames = {
    "other",       "weights", "gradients", "optimizer state",
    "activations", "inputs",  "workspace", "library workspaces"};

}  // namespace headroom
