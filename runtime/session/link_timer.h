// How fast a device copies to page-locked host memory and back, measured.
#pragma once

#include <cstdint>
#include <optional>

#include "device/device.h"

namespace headroom {

// Bytes in a microsecond each way, while copies go both ways. Takes some memory of the driver and gives it
// back; nothing where the process would then hold more than `max_process_bytes`, or the device or the host
// has no room. The device must be initialised. Throws DeviceError as copies do.
std::optional<double> measure_link_bytes_per_us(Device& device, int64_t max_process_bytes);

}  // namespace headroom
