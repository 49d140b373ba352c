// Libraries before any pool: their handles and a first call of each, so that a strategy which takes all the
// rest leaves them what they need, as measured. Knows no graph and no strategy.
#pragma once

#include <cstdint>

#include "runtime/device/device.h"

namespace headroom {

// Initialises the device, starts both libraries and has each compute something small, launched and recorded.
// Returns the bytes to leave free for what else they may load: on a GPU as much as these first calls took
// beside the handles, and a page of the driver for each library; on a simulated one what is still pending.
// Throws LibraryError or DeviceError when there is no room for them.
int64_t start_libraries(Device& device);

}  // namespace headroom
