// Recordings for devices that run their work at once: the tasks in the order given. Knows no device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/device/device.h"

namespace headroom {

// A recording whose launch() calls every task in turn, `repeats` times over. Throws InvalidArgument as
// check_tasks does.
std::unique_ptr<Recording> record_in_order(std::span<const Task> tasks, int64_t repeats);

// Throws InvalidArgument for a task that waits for itself, for a later one or for one that is not there, and
// for fewer than one repetition: what every Device::record refuses.
void check_tasks(std::span<const Task> tasks, int64_t repeats);

}  // namespace headroom
