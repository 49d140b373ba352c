// Runs a few real steps of a program, and says what they took and how they ended, in this process or to
// another one. Knows no command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "answers/workload.h"
#include "base/safetensors.h"
#include "runtime/app/run_result.h"
#include "tools/workload/workload.h"
#include "trace/trace.h"

namespace headroom {

struct Measurement : RunResult {
  int64_t steps = 0;  // that ran
  // The median, of groups of steps where the data is on the device; on a simulated GPU plus the mean time of
  // its driver's calls after the first step, on its own clock. For a trace the strategy's time for one pass
  // plus the mean time of the driver's calls.
  double seconds_per_step = 0;
  double driver_seconds = 0;  // time of all driver calls
  // The share of idle reserved bytes outside the largest free block when most is allocated, or when there is
  // no room: of a twin, as a run cannot stop to look.
  double fragmentation = 0;
  int64_t overhead_bytes = 0;  // context and libraries: what the process holds beside its strategies
  // With a budget of memory: what was planned for it, of replicas for the first one, but the bytes of the
  // process are of the one that takes the most.
  int64_t planned_process_bytes = 0;
  double planned_seconds_per_step = 0;  // time of the nodes, by the model of the device
  int repeated_nodes = 0;
  int64_t host_bytes = 0;            // planned for values in host memory
  std::vector<NamedTensor> outputs;  // of a forward pass
};

// The memory of simulated GPUs and of the CPU is the host's: returns true if that has room for the program.
bool host_has_room(const Traced& program, const RuntimeOptions& options);

// Runs the steps of the options, mnist for one epoch, and tests mnist. Lack of memory and
// library failures end in the result. Throws InvalidArgument for bad options.
Measurement measure(const WorkloadOptions& options);
// Measures; a program that is refused for its budget (MemoryTooSmall) is also a result.
Measurement measure_or_refuse(const WorkloadOptions& options);

// Plays the trace `steps` times with the strategy of the options, on their device, where context and
// libraries have their memory already; on a simulated GPU as it is predicted.
Measurement measure(const Trace& trace, const RuntimeOptions& options, int64_t steps);

// Convert to one line of JSON, and back without devices, replicas and facts. The latter throws
// InvalidArgument for any other text.
std::string to_json(const Measurement& measurement);
Measurement parse_measurement(const std::string& json);

}  // namespace headroom
