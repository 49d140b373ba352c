// What a few steps of a program took, or how they ended, as a process tells it to another. Knows no program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/errors.h"

namespace headroom {

struct Measurement {
  std::string outcome = "ok";  // "out_of_memory", "library_failure" (of a library or the driver)
  std::string error;           // one line; empty when all went well
  int64_t steps = 0;           // that were run
  // Median; on a simulated GPU with the mean of what its driver's calls take after the first step, on its own
  // clock. Of a trace the strategy's own time for one pass and the mean of the driver's.
  double seconds_per_step = 0;
  double driver_seconds = 0;      // of all the driver's calls
  int64_t peak_device_bytes = 0;  // as the driver sees it, others included
  int64_t peak_process_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  // Share of the idle reserved bytes outside the largest free block when most is allocated, or when there is
  // no room: of a twin on a simulated device, as a run cannot be stopped to look.
  double fragmentation = 0;
  int64_t overhead_bytes = 0;  // context and libraries: what the process holds past the strategy
  // When memory ran out; not told to other processes.
  std::optional<MemoryFacts> memory = {};
};

// As one line of JSON, and back. The latter throws InvalidArgument for anything else.
std::string to_json(const Measurement& measurement);
Measurement parse_measurement(const std::string& json);

}  // namespace headroom
