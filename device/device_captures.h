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

// A piece of work to capture: queues itself on the given stream, the same work at each call, and waits for
// nothing. It may run concurrently with every task that it is not ordered with.
struct Task {
  std::function<void(Stream)> run;
  std::vector<int> after;           // positions of earlier tasks that must be done first
  std::vector<int> after_previous;  // positions of tasks that must be done first in the repetition before
  // True if the task may start before these tasks are done, once they run: it waits for them on the device,
  // and until then does only work that needs none of their results.
  bool starts_early = false;
  // True for a collective call, which all ranks make together.
  bool is_collective = false;
  // The device that does the work and whose stream the task gets; null: the capturing device.
  Device* device = nullptr;
  // Tasks of one lane run in the given order, and `after` contains that order. A device that orders work by
  // streams gives each lane above 0 a stream of its own.
  int lane = 0;
};

// Captured work that can be queued many times, with no allocation between its parts. The objects that its
// tasks refer to must outlive it.
class Capture {
 public:
  virtual ~Capture() = default;
  // Queues all captured work after the present work of `stream` and of the default streams of the tasks'
  // other devices, which continue after it. Throws DeviceError, and whatever tasks throw that run at once.
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
  // Returns true if each launch calls the tasks again on the host, where they may wait, fail, and use any
  // device. Otherwise a launch repeats the work that they queued during capture, on devices of this kind.
  virtual bool call_tasks() const = 0;
};

// Throws InvalidArgument if a task waits for itself, for a later one or for a missing one, or if there is
// less than one repetition. Every DeviceCaptures::capture refuses these.
void check_tasks(std::span<const Task> tasks, int64_t repeats);

}  // namespace headroom
