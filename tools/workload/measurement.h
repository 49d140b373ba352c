// What a few steps of a program took, or how they ended, as a process tells it to another. Knows no program.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/app/run_result.h"

namespace headroom {

struct Measurement : RunResult {
  int64_t steps = 0;  // that were run
  // Median; on a simulated GPU with the mean of what its driver's calls take after the first step, on its own
  // clock. Of a trace the strategy's own time for one pass and the mean of the driver's.
  double seconds_per_step = 0;
  double driver_seconds = 0;  // of all the driver's calls
  // Share of the idle reserved bytes outside the largest free block when most is allocated, or when there is
  // no room: of a twin on a simulated device, as a run cannot be stopped to look.
  double fragmentation = 0;
  int64_t overhead_bytes = 0;  // context and libraries: what the process holds past its strategies
};

// As one line of JSON, and back but for devices, replicas and facts. The latter throws InvalidArgument for
// anything else.
std::string to_json(const Measurement& measurement);
Measurement parse_measurement(const std::string& json);

}  // namespace headroom
