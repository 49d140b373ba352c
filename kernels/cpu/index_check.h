// The check of indices in input data. Knows ops only by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/index_fault.h"

namespace headroom::cpu {

// Throws DeviceError naming the op, the first index outside [0, extent), its position and the range.
// `what` is the word for such an index: "label", "index".
inline void check_indices(std::string_view op_name, std::string_view what, const int32_t* indices,
                          int64_t count, int64_t extent) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] >= 0 && indices[i] < extent) continue;
    throw index_fault(op_name, what, indices[i], i, extent);
  }
}

}  // namespace headroom::cpu
