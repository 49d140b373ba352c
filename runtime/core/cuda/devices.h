// NVIDIA GPUs as devices: the way in for code that must not see CUDA's headers. A build without CUDA answers
// too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/core/device.h"

namespace headroom {

struct CudaSettings {
  int ordinal = 0;
};

// GPU `ordinal` among the visible ones, not initialised: no context yet. Throws InvalidArgument when there is
// none, saying why (no CUDA in this build, no driver, no such GPU).
std::unique_ptr<Device> make_cuda_device(const CudaSettings& settings);

}  // namespace headroom
