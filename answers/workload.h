// Every question is asked about a workload, which gives the traces of its devices for a batch. A graph of
// ours is lowered to traces (lower.h), a program of PyTorch is traced, and a recording has one trace. Knows
// no device and no command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/memory_solution.h"
#include "device/device.h"
#include "trace/trace.h"

namespace headroom {

class Allocator;

// The requests to one device of a program.
struct TracedDevice {
  std::string name = {};  // "/device:GPU:1"; empty: the device of the options
  std::shared_ptr<const Trace> trace = {};
  std::vector<Library> libraries = {};  // that the program uses there, if it starts them
  int64_t variable_bytes = 0;           // bytes of blocks for the variables of a graph
  int rank = 0;                         // of its replica; rising

  // The most that a step of any session has beside them.
  int64_t step_bytes() const { return trace->peak_bytes - variable_bytes; }
};

// The next events of a device, then what is started there.
struct Turn {
  size_t device = 0;   // position in Traced::devices
  int64_t events = 0;  // up to this position in Trace::events
  // Starts libraries, or loads code of the program's own, as a session does; empty: nothing. Throws
  // LibraryError and DeviceError.
  std::function<void(Device&, Allocator&)> start = {};
};

// A program as it asks the devices of its machine for memory.
struct Traced {
  std::vector<TracedDevice> devices = {};
  // The order across devices; empty for a single trace.
  std::vector<Turn> turns = {};
  // Turns at which a step of a session begins, which repeats; each ends where the next one begins.
  std::vector<size_t> steps = {};
  // True if the program starts context and libraries. Otherwise they take their memory before it starts.
  bool starts_libraries = false;
  // The reason why a program could not be planned for its budget; it is not run then.
  std::optional<MemoryTooSmall> refusal = {};
  int64_t copies = 0, copied_bytes = 0;  // between devices, in a step of the first session of all replicas

  const Trace& front() const { return *devices.front().trace; }
};

// A single trace that starts no library. The second one must outlive the result.
inline Traced traced(Trace trace) {
  return {{{.trace = std::make_shared<const Trace>(std::move(trace))}}};
}
inline Traced traced_here(const Trace& trace) {
  return {{{.trace = std::shared_ptr<const Trace>(std::shared_ptr<const Trace>(), &trace)}}};
}

// Gives a program's traces for a batch: of a graph, or a program of PyTorch. Throws InvalidArgument for a
// batch that it cannot have.
using Workload = std::function<Traced(int64_t batch)>;

}  // namespace headroom
