// Captures of a device's work: tasks that are recorded once and launched as a whole, as CUDA graphs are.
// Knows no graph of tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/stream.h"

namespace headroom {

class Device;

// A piece of work to capture: queues itself on the stream it is given, the same work at each call, and waits
// for nothing. It may run beside every task that it is not ordered with.
struct Task {
  std::function<void(Stream)> run;
  std::vector<int> after;           // positions of earlier tasks that must be done first
  std::vector<int> after_previous;  // positions of tasks that must be done first in the repetition before
  // Whether the task may be started before those are done, once they run themselves: it waits for them on the
  // device, and until then does only what needs none of their results.
  bool starts_early = false;
  // Whether it is a call of a collective, which all ranks make together.
  bool is_collective = false;
  // Whose work it is, and whose stream it is given; null: the device's that captures it.
  Device* device = nullptr;
  // Tasks of one lane follow each other in the order given; `after` says so, too. A device that orders work
  // by streams gives each lane above 0 one of its own.
  int lane = 0;
};

// Captured work that can be queued any number of times, with no allocation between its parts. What its tasks
// refer to must outlive it.
class Capture {
 public:
  virtual ~Capture() = default;
  // Queues all of it behind what `stream` holds already, and what the default streams of its tasks' other
  // devices hold; these go on after it. Throws DeviceError, as the tasks do where they run
  // at once.
  virtual void launch(Stream stream) = 0;
};

class DeviceCaptures {
 public:
  virtual ~DeviceCaptures() = default;
  // Captures the tasks, `repeats` times over. Each task must have run once before, so that all that it needs
  // is loaded. A GPU runs unordered tasks side by side; other devices may run them in the order given. Throws
  // InvalidArgument as check_tasks does, and for a task of a device whose work it cannot hold; DeviceError
  // when the driver refuses.
  virtual std::unique_ptr<Capture> capture(std::span<const Task> tasks, int64_t repeats) = 0;
  // Whether each launch calls the tasks again, on the host: they may then wait, fail, and use any device.
  // Otherwise a launch repeats the work that they queued while they were captured, on devices of this kind.
  virtual bool call_tasks() const = 0;
};

// Throws InvalidArgument for a task that waits for itself, for a later one or for one that is not there, and
// for fewer than one repetition: what every DeviceCaptures::capture refuses.
void check_tasks(std::span<const Task> tasks, int64_t repeats);

}  // namespace headroom
