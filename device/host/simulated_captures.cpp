#include "device/host/simulated_captures.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "device/host/host_captures.h"

namespace headroom {
namespace {

class LanesCapture final : public Capture {
 public:
  LanesCapture(std::span<const Task> tasks, int64_t repeats, DeviceStreams& streams)
      : tasks_(tasks.begin(), tasks.end()),
        repeats_(repeats),
        streams_(streams),
        is_waited_for_(tasks.size()) {
    int lanes = 0;
    for (const Task& task : tasks_) {
      lanes = std::max(lanes, task.lane);
      for (const int other : task.after) {
        const auto before = static_cast<size_t>(other);
        is_waited_for_[before] = is_waited_for_[before] || tasks_[before].lane != task.lane;
      }
    }
    while (lanes_.size() < static_cast<size_t>(lanes)) lanes_.push_back(streams_.new_stream());
  }
  ~LanesCapture() override {
    for (const Stream lane : lanes_) streams_.delete_stream(lane);
  }
  LanesCapture(const LanesCapture&) = delete;
  LanesCapture& operator=(const LanesCapture&) = delete;

  // One repetition after the other.
  void launch(Stream stream) override {
    for (int64_t i = 0; i < repeats_; ++i) run_once(stream);
  }

 private:
  void run_once(Stream stream) {
    for (const Stream lane : lanes_) streams_.wait(lane, stream);
    std::vector<std::unique_ptr<Event>> done(tasks_.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = tasks_[i];
      const Stream own = task.lane == 0 ? stream : lanes_[static_cast<size_t>(task.lane) - 1];
      for (const int other : task.after) {
        const auto before = static_cast<size_t>(other);
        if (tasks_[before].lane != task.lane) streams_.wait(own, *done[before]);
      }
      task.run(own);
      if (is_waited_for_[i]) done[i] = streams_.record_event(own);
    }
    for (const Stream lane : lanes_) streams_.wait(stream, lane);
  }

  const std::vector<Task> tasks_;
  const int64_t repeats_;
  DeviceStreams& streams_;
  std::vector<bool> is_waited_for_;  // by task: from another lane
  std::vector<Stream> lanes_;        // from the first one with a stream of its own on
};

}  // namespace

std::unique_ptr<Capture> SimulatedCaptures::capture(std::span<const Task> tasks, int64_t repeats) {
  check_tasks(tasks, repeats);
  if (std::ranges::any_of(tasks, [](const Task& task) { return task.lane > 0; }))
    return std::make_unique<LanesCapture>(tasks, repeats, streams_);
  return HostCaptures().capture(tasks, repeats);
}

}  // namespace headroom
