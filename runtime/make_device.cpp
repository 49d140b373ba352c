// Apart from options.cpp: a program that only reads options needs no library of a GPU.
#include <fmt/format.h>

#include "runtime/core/cpu/cpu_device.h"
#include "runtime/core/cuda/devices.h"
#include "runtime/core/errors.h"
#include "runtime/core/sim/simulated_gpu.h"
#include "runtime/core/suggest.h"
#include "runtime/options.h"

namespace headroom {

std::unique_ptr<Device> make_device(const RuntimeOptions& options) {
  if (std::optional<DeviceProfile> profile = simulated_profile(options)) {
    return std::make_unique<SimulatedGpu>(std::move(*profile));
  }
  const std::string_view name = options.device;
  if (const std::optional<int> ordinal = cuda_ordinal(name)) {
    if (options.context_bytes) {
      throw InvalidArgument("context changes a simulated GPU; a real one's takes what it takes");
    }
    return make_cuda_device({*ordinal, options.device_memory_bytes, options.others_bytes});
  }
  if (name != "cpu") {
    const std::vector<std::string> names = device_names();
    const std::vector<std::string_view> known(names.begin(), names.end());
    throw InvalidArgument(
        fmt::format("unknown device '{}'; known: {}", name, list_with_suggestion(name, known)));
  }
  if (options.device_memory_bytes || options.others_bytes || options.context_bytes) {
    throw InvalidArgument("device-memory, others and context change a GPU; the device is 'cpu'");
  }
  return std::make_unique<CpuDevice>();
}

}  // namespace headroom
