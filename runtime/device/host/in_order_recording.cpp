#include "runtime/device/host/in_order_recording.h"

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace headroom {
namespace {

class InOrderRecording final : public Recording {
 public:
  InOrderRecording(std::span<const Task> tasks, int64_t repeats) : repeats_(repeats) {
    for (const Task& task : tasks) runs_.push_back(task.run);
  }

  void launch(Stream stream) override {
    for (int64_t i = 0; i < repeats_; ++i) {
      for (const auto& run : runs_) run(stream);
    }
  }

 private:
  std::vector<std::function<void(Stream)>> runs_;
  const int64_t repeats_;
};

}  // namespace

std::unique_ptr<Recording> record_in_order(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  return std::make_unique<InOrderRecording>(tasks, repeats);
}

void check_tasks(std::span<const Task> tasks, int64_t repeats) {
  if (repeats < 1) throw InvalidArgument(fmt::format("a recording of {} repetitions", repeats));
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
