// The check of indices that arrive as data, so at run time. Knows no op but by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::cpu {

// Throws DeviceError naming the op, the first index outside [0, extent), its position and the range.
// `what` is the word for such an index: "label", "index".
void check_indices(std::string_view op_name, std::string_view what, const int32_t* indices, int64_t count,
                   int64_t extent);

}  // namespace headroom::cpu
