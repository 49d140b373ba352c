// What a few steps of a program took, or how they ended, as a process tells it to another. Knows no program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/mnist/train_result.h"
#include "runtime/core/errors.h"

namespace headroom {

// Of several replicas the peaks are the largest of any.
struct Measurement {
  std::string outcome = "ok";  // as TrainResult's
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
  // Of all replicas by rank, where there are several; not told to other processes, nor is what follows.
  std::vector<ReplicaResult> replicas = {};
  std::optional<int> failed_rank = {};
  std::optional<MemoryFacts> memory = {};  // when it ran out
};

// As one line of JSON, and back but for the replicas. The latter throws InvalidArgument for anything else.
std::string to_json(const Measurement& measurement);
Measurement parse_measurement(const std::string& json);

}  // namespace headroom
