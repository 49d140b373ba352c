// Names that the options of a program and their help share.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// The title over the options that every program has.
inline constexpr const char* kCommonGroup = "Common options";

// "HEADROOM_DEVICE_MEMORY" for "device-memory".
std::string variable_of(std::string_view option);

}  // namespace headroom
