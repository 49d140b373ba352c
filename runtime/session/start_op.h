// What an op needs of its device before its first run: the session and the prediction of its peak ask alike.
// Knows no graph and no kernel.
#pragma once

#include "allocators/allocator.h"
#include "runtime/base/errors.h"
#include "runtime/device/device.h"
#include "runtime/ops/ops.h"

namespace headroom {

// Starts the library that the op needs and loads the op's code. When the device has no room for them, what
// the strategy holds idle goes back to the driver and both are asked once more. Throws LibraryError or
// DeviceError.
void start_op(const Op& op, Device& device, Allocator& allocator);

// Initialises the device and makes the handles of both libraries. Returns what they may still load, as far as
// the device tells: nothing on a GPU. Throws LibraryError or DeviceError when there is no room for them.
int64_t start_library_handles(Device& device);

// Returns attempt(). When that throws an Error, what the strategy holds idle goes back to the driver and it
// is tried once more: for whatever takes memory of the device past the strategy. A LibraryError that lack of
// memory may explain then says who holds what.
template <typename F>
auto with_idle_memory(Allocator& allocator, F attempt) {
  try {
    try {
      return attempt();
    } catch (const Error&) {
      if (allocator.trim() == 0) throw;
    }
    return attempt();
  } catch (LibraryError& error) {
    if (error.may_lack_memory()) error.set_memory(allocator.facts(0));
    throw;
  }
}

}  // namespace headroom
