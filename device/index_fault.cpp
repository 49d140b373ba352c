#include "device/index_fault.h"

#include <fmt/format.h>

#include <string>

namespace headroom {

DeviceError index_fault(std::string_view op_name, std::string_view what, int64_t index, int64_t position,
                        int64_t extent) {
  return DeviceError(std::string(op_name), "out of range",
                     fmt::format("{} {} at position {} is outside [0, {})", what, index, position, extent),
                     "");
}

}  // namespace headroom
