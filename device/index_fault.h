// The error for an index in the data that is out of range: the same text for checks on the host and in
// kernels. Knows ops only by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/errors.h"

namespace headroom {

// Formats "gather failed: out of range: index 7 at position 2 is outside [0, 5)". `what` names the index:
// "label", "index".
DeviceError index_fault(std::string_view op_name, std::string_view what, int64_t index, int64_t position,
                        int64_t extent);

// True for such an error: the data is at fault, not the device.
bool is_index_fault(const DeviceError& error);

}  // namespace headroom
