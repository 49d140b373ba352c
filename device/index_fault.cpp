#include "device/index_fault.h"

#include <fmt/format.h>

#include <string>

namespace headroom {
namespace {

constexpr const char* kOutOfRange = "out of range";

}  // namespace

DeviceError index_fault(std::string_view op_name, std::string_view what, int64_t index, int64_t position,
                        int64_t extent) {
  return DeviceError(std::string(op_name), kOutOfRange,
                     fmt::format("{} {} at position {} is outside [0, {})", what, index, position, extent),
                     "");
}

bool is_index_fault(const DeviceError& error) {
  return error.status() == kOutOfRange;
}

}  // namespace headroom
