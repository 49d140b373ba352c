// Recordings for a device whose work runs on the host, on several threads: tasks that are not ordered run
// side by side. Knows no device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/device/device.h"

namespace headroom {

// A recording whose launch() runs the tasks on `threads` (> 1) threads, of which the caller is one, and
// returns when all are done. Where tasks throw, no further one is begun, and what the first of them in order
// has thrown comes out of launch(). Throws InvalidArgument as check_tasks does.
std::unique_ptr<Recording> record_on_threads(std::span<const Task> tasks, int64_t repeats, int threads);

}  // namespace headroom
