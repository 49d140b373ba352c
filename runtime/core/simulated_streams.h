// Streams of a device whose work runs on the host as it is queued, but may be said to take time: a clock that
// only moves when somebody waits. Knows no device.
#pragma once

#include <functional>
#include <memory>

#include "runtime/core/device.h"

namespace headroom {

// Thread-safe. A stream that it did not make, such as the default one, has no work at first.
class SimulatedStreams {
 public:
  SimulatedStreams();
  ~SimulatedStreams();

  Stream add();
  void remove(Stream stream) noexcept;
  // Queues work on the stream that takes so many microseconds of the clock.
  void occupy(Stream stream, double us);
  void wait(Stream stream, Stream other);
  std::unique_ptr<Event> record(Stream stream);
  // Moves the clock on to the end of the stream's work.
  void synchronize(Stream stream);
  // To the end of all work.
  void synchronize_all();
  double now_us() const;
  // `callback` is called after each wait of the host for a stream or an event, until it is replaced by an
  // empty one. It must not wait itself.
  void call_after_waits(const void* owner, std::function<void()> callback);

 private:
  struct State;
  class TimedEvent;
  std::shared_ptr<State> state_;  // events may outlive the device
};

}  // namespace headroom
