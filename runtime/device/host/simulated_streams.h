// Streams of a device whose work runs on the host, but may be said to take time: work is done when a clock
// that only moves when somebody waits comes to its end. What takes no time on an idle stream is done at once.
// Knows no device.
#pragma once

#include <functional>
#include <memory>

#include "runtime/device/device_streams.h"

namespace headroom {

// Thread-safe. A stream that it did not make, such as the default one, has no work at first.
class SimulatedStreams final : public DeviceStreams {
 public:
  // Work takes `kernel_us` unless it says otherwise. With `takes_all_work` takes_work() is always true: work
  // may take time though the streams are idle.
  explicit SimulatedStreams(double kernel_us = 0, bool takes_all_work = false);
  // What is still queued never runs.
  ~SimulatedStreams() override;

  Stream new_stream() override;
  void delete_stream(Stream stream) noexcept override;
  void wait(Stream stream, Stream other) override;
  void wait(Stream stream, const Event& event) override;
  std::unique_ptr<Event> record_event(Stream stream) override;
  void queue(Stream stream, StreamWork work) override;
  // Whether queue() would do more than run work of no duration at once.
  bool takes_work(Stream stream) const override;
  // Moves the clock on to the end of the stream's work, and throws what that has thrown.
  void synchronize(Stream stream) override;

  // Queues work that takes so many microseconds of the clock; what takes none on an idle stream runs now.
  // Throws what work throws that runs now, and, with nothing queued, StreamHazard where streams are checked.
  void queue(Stream stream, StreamWork work, double us);
  // Queues work on the stream that does nothing for so long.
  void occupy(Stream stream, double us);
  // Moves the clock on to the end of all work.
  void synchronize_all() noexcept;
  double now_us() const;
  // The memory went back to the driver.
  void forget(const void* data, int64_t bytes) noexcept;
  // `callback` is called after each wait of the host for a stream or an event, until it is replaced by an
  // empty one. It must not wait itself.
  void call_after_waits(const void* owner, std::function<void()> callback);

  // From now on each queue() waits for its work, as CUDA's do with CUDA_LAUNCH_BLOCKING=1.
  void set_blocking(bool blocking);
  // From now on waits that are missing between streams are found, see StreamChecker.
  void check_waits();

 private:
  struct State;
  class TimedEvent;
  const double kernel_us_;
  const bool takes_all_work_;
  std::shared_ptr<State> state_;  // events may outlive the device
};

}  // namespace headroom
