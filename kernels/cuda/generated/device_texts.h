// The texts of the headers that generated kernels include, as the build has read them.
#pragma once

#include <span>

namespace headroom::cuda {

struct DeviceText {
  const char* name;  // as an #include names it
  const char* text;
};
std::span<const DeviceText> device_texts();

}  // namespace headroom::cuda
