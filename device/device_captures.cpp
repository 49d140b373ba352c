#include "device/device_captures.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/errors.h"

namespace headroom {

void check_tasks(std::span<const Task> tasks, int64_t repeats) {
  if (repeats < 1) throw InvalidArgument(fmt::format("a capture of {} repetitions", repeats));
  const auto count = static_cast<int>(tasks.size());
  for (int i = 0; i < count; ++i) {
    const Task& task = tasks[static_cast<size_t>(i)];
    for (int other : task.after) {
      if (other < 0 || other >= i) throw InvalidArgument(fmt::format("task {} waits for task {}", i, other));
    }
    for (int other : task.after_previous) {
      if (other < 0 || other >= count) {
        throw InvalidArgument(fmt::format("task {} waits for task {} of {}", i, other, count));
      }
    }
  }
}

}  // namespace headroom
