// The streams of a device: queues of work, the order between them, and events. Knows no memory strategy and
// no graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/stream.h"

namespace headroom {

// Bytes of the device's memory that work reads, or writes (and may read).
struct MemoryUse {
  const void* data = nullptr;
  int64_t bytes = 0;
  bool writes = false;
  std::string name = {};  // name of the value at that address, if known
};

struct StreamWork {
  // Queues itself on the given stream and must not wait for a stream. If work runs on the host, it may be
  // called after the call that queued it has returned, so it owns everything that it needs except device
  // memory.
  std::function<void(Stream)> run;
  std::string name = {};             // "dense/matmul"
  std::string place = {};            // the line of code that asked for it: "net.cpp:31"
  std::vector<MemoryUse> uses = {};  // for a device that checks its streams
  std::optional<double> us = {};     // on a simulated GPU; the profile's time of a kernel when absent
};

// A point in the work of a stream, reached when all work queued before it is done.
class Event {
 public:
  virtual ~Event() = default;
  // Throw DeviceError when the device has failed.
  virtual bool done() const = 0;
  virtual void wait() = 0;
};

// Streams that other code created with the same driver can be used as well.
class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;

  // A stream of its own, until delete_stream; work on it is not ordered with other streams'. Throws
  // DeviceError.
  virtual Stream new_stream() = 0;
  virtual void delete_stream(Stream stream) noexcept = 0;
  // Makes later work on `stream` begin after all present work of `other`; the host continues. Throw
  // DeviceError.
  virtual void wait(Stream stream, Stream other) = 0;
  virtual std::unique_ptr<Event> record_event(Stream stream) = 0;
  // Waits for all work before `event`, which must belong to this device.
  virtual void wait(Stream stream, const Event& event) = 0;
  // Queues work. Throws the work's exception if it runs at once, and StreamHazard, with nothing queued, if
  // the device checks its streams and a wait is missing.
  virtual void queue(Stream stream, StreamWork work) { work.run(stream); }
  // Returns true if queue() does more than call the work; otherwise callers may skip it.
  virtual bool takes_work(Stream) const { return false; }
  // Waits until everything queued on `stream` is done. Throws DeviceError when that failed, or met data that
  // it could not take (an index out of range); after the latter the device is usable.
  virtual void synchronize(Stream stream) = 0;
};

}  // namespace headroom
