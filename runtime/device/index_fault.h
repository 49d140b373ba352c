// The error for an index that arrived as data and is outside its range: the same words wherever it is found,
// on the host or by a kernel on a device. Knows no op but by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/errors.h"

namespace headroom {

// "gather failed: out of range: index 7 at position 2 is outside [0, 5)". `what` is the word for such an
// index: "label", "index".
DeviceError index_fault(std::string_view op_name, std::string_view what, int64_t index, int64_t position,
                        int64_t extent);

}  // namespace headroom
