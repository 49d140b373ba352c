// A device: its memory, its libraries and its names. Knows no graph, no kernel and no strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/stream.h"
#include "runtime/device/stream_ordered_pool.h"
#include "runtime/device/stream_work.h"

namespace headroom {

// Libraries whose handle takes device memory when it is made. kBlas multiplies matrices, kDnn convolves.
enum class Library : uint8_t { kNone, kBlas, kDnn };

enum class DeviceKind : uint8_t { kCpu, kSimulatedGpu, kCuda };

// A piece of work to be recorded: queues itself on the stream it is given, the same work at each call, and
// waits for nothing. It may run beside every task that it is not ordered with.
struct Task {
  std::function<void(Stream)> run;
  std::vector<int> after;           // positions of earlier tasks that must be done first
  std::vector<int> after_previous;  // positions of tasks that must be done first in the repetition before
  // Whether the task may be started before those are done, once they run themselves: it waits for them on the
  // device, and does before that only what needs none of their results.
  bool starts_early = false;
  // Whether it is a call of a collective, which all ranks make together.
  bool is_collective = false;
};

// Work that was recorded once and can be queued as a whole any number of times, with no host work and no
// allocation between its parts. What its tasks refer to must outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
  // Queues all of it behind what `stream` holds already. Throws DeviceError, as the tasks do where they run
  // at once.
  virtual void launch(Stream stream) = 0;
};

// A point in the work of a stream, reached when all that was queued before it is done.
class Event {
 public:
  virtual ~Event() = default;
  // Throw DeviceError when the device has failed.
  virtual bool done() const = 0;
  virtual void wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  // "/device:GPU:0", "/device:CPU:0".
  virtual const std::string& name() const = 0;
  // "simulated laptop-2gb", "AMD EPYC", "NVIDIA H200".
  virtual const std::string& description() const = 0;
  // CUDA compute capability, major * 10 + minor; 0 where there is none. TensorFlow's reserve depends on it.
  virtual int compute_capability() const = 0;

  virtual DeviceMemory& memory() = 0;

  // Makes the context, once; later calls do nothing. Throws DeviceError when the device has no room for it.
  virtual void initialise() = 0;
  // Makes the library's handle, once. Throws LibraryError when it cannot, with the failing call's status and
  // the lines that a user sees; a later call tries again.
  virtual void start_library(Library library) = 0;
  // Loads the code of one op, once per op name, as lazy module loading does at the first launch. Throws
  // DeviceError.
  virtual void load_module(std::string_view op_name, Library library) = 0;
  // What start_library and load_module may still take from the device, in bytes: the room that a cap on the
  // whole process has to leave. Falls by what each of them takes; 0 where libraries take nothing.
  virtual int64_t pending_library_bytes() const = 0;
  // A stream of its own, until delete_stream; work on it is not ordered with other streams'. Throws
  // DeviceError. Streams that others made with the same driver will do, too.
  virtual Stream new_stream() = 0;
  virtual void delete_stream(Stream stream) noexcept = 0;
  // What is queued on `stream` from now on begins after all that `other` holds now; the host goes on. Throw
  // DeviceError.
  virtual void wait(Stream stream, Stream other) = 0;
  virtual std::unique_ptr<Event> record_event(Stream stream) = 0;
  // The same for all that came before `event`, which must be of this device.
  virtual void wait(Stream stream, const Event& event) = 0;
  // Queues work. Throws what the work throws where it runs at once, and StreamHazard, with nothing queued,
  // where the device checks its streams and a wait is missing.
  virtual void queue(Stream stream, StreamWork work) { work.run(stream); }
  // Whether queue() does more than call the work. Where it does not, nobody needs to ask for it.
  virtual bool takes_work(Stream) const { return false; }
  // Queue a copy of `bytes`. The host goes on if its memory is of DeviceMemory::allocate_host, which must
  // then stay as it is until the copy is done; with other memory it may wait. Throw DeviceError, and
  // StreamHazard as queue() does.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes, Stream) {
    memory().copy_to_device(device, host, bytes);
  }
  virtual void copy_to_host(void* host, const void* device, int64_t bytes, Stream) {
    memory().copy_to_host(host, device, bytes);
  }
  // A pool of the driver's own; null where there is none. The device must outlive it. Throws DeviceError.
  virtual std::unique_ptr<StreamOrderedPool> make_stream_ordered_pool(const StreamOrderedPoolSettings&) {
    return nullptr;
  }
  // Waits until everything queued on `stream` is done. Throws DeviceError when that failed, or met data that
  // it could not take (an index out of range); after the latter the device is usable.
  virtual void synchronize(Stream stream) = 0;
  // Queues a copy of `bytes` of another device's memory to this one's: behind what the default streams of
  // both hold, and before what they are given from now on. False, with nothing queued, where only the host
  // can copy between the two. Throws DeviceError.
  virtual bool copy_from(Device& other, void* to, const void* from, int64_t bytes) {
    (void)other, (void)to, (void)from, (void)bytes;
    return false;
  }
  // Records the tasks, `repeats` times over. Each task must have run once before, so that all that it needs
  // is loaded. A GPU runs side by side what is not ordered; other devices run the tasks in the order given.
  // Throws InvalidArgument for a task that waits for itself or a later one, DeviceError when the driver
  // refuses.
  virtual std::unique_ptr<Recording> record(std::span<const Task> tasks, int64_t repeats) = 0;
  // The threads of the host that kernels which run there share a loop among; null: the caller's alone.
  virtual ThreadPool* kernel_threads() { return nullptr; }
  // Time spent in driver calls so far, on the device's own clock: simulated time on a simulated GPU.
  virtual double driver_time_us() const = 0;
};

}  // namespace headroom
