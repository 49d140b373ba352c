// Streams of a device whose work runs on the host, with a clock that moves only when the host waits. Work may
// take time on that clock, and runs when the clock reaches its end; work without duration runs at once on an
// idle stream. Knows no device.
#pragma once

#include <functional>
#include <memory>

#include "device/device_streams.h"

namespace headroom {

// Thread-safe. A stream that it did not make, such as the default one, has no work at first.
class SimulatedStreams final : public DeviceStreams {
 public:
  // Work takes `kernel_us` unless it says otherwise. With `takes_all_work` takes_work() is always true: work
  // may take time though the streams are idle.
  explicit SimulatedStreams(double kernel_us = 0, bool takes_all_work = false);
  // Queued work that has not started never runs.
  ~SimulatedStreams() override;

  Stream new_stream() override;
  void delete_stream(Stream stream) noexcept override;
  void wait(Stream stream, Stream other) override;
  void wait(Stream stream, const Event& event) override;
  std::unique_ptr<Event> record_event(Stream stream) override;
  void queue(Stream stream, StreamWork work) override;
  // Returns true if queue() would do more than run work of no duration at once.
  bool takes_work(Stream stream) const override;
  // Moves the clock to the end of the stream's work, and throws the exception of that work.
  void synchronize(Stream stream) override;

  // Queues work that lasts `us` on the clock. Throws the work's exception if it runs at once, and
  // StreamHazard, with nothing queued, if streams are checked.
  void queue(Stream stream, StreamWork work, double us);
  // Queues work that does nothing for `us`.
  void occupy(Stream stream, double us);
  // Moves the clock on to the end of all work.
  void synchronize_all() noexcept;
  double now_us() const;
  // The memory went back to the driver.
  void forget(const void* data, int64_t bytes) noexcept;
  // Calls `callback` after each wait of the host for a stream or an event, until an empty one replaces it. It
  // must not wait itself.
  void call_after_waits(const void* owner, std::function<void()> callback);

  // From now on each queue() waits for its work, as CUDA's do with CUDA_LAUNCH_BLOCKING=1.
  void set_blocking(bool blocking);
  // From now on finds missing waits between streams, see StreamChecker.
  void check_waits();

 private:
  struct State;
  class TimedEvent;
  const double kernel_us_;
  const bool takes_all_work_;
  std::shared_ptr<State> state_;  // events may outlive the device
};

}  // namespace headroom
