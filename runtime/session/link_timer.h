// Measures the speed of copies between a device and page-locked host memory.
#pragma once

#include <cstdint>
#include <optional>

#include "device/device.h"

namespace headroom {

// Measures bytes per microsecond each way, while copies go both ways. Allocates some driver memory and
// releases it; returns nullopt if the process would then use more than `max_process_bytes`, or the device or
// the host has no room. The device must be initialized. Throws DeviceError as copies do.
std::optional<double> measure_link_bytes_per_us(Device& device, int64_t max_process_bytes);

}  // namespace headroom
