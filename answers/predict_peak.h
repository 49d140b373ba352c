// The memory that a program will take, to the byte, without computing anything: walks its plans on twins of
// the devices with the same strategies. Knows no kernel.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/device_set.h"

namespace headroom {

struct PeakPrediction {
  int64_t allocated_bytes = 0;  // highest sum of live blocks, variables included
  int64_t reserved_bytes = 0;
  int64_t process_bytes = 0;  // the driver's figure for the process, with context and libraries
  double fragmentation = 0;   // of Statistics, when most was allocated
};

// The sessions of a replica, or of a program alone, over one graph, and their devices.
struct PlayedProgram {
  const Graph* graph = nullptr;
  std::vector<const Plan*> plans;  // of each session
  DeviceSet devices;
};

// Takes the memory of all programs, then walks their plans in turn until a whole round raises no peak.
// Returns the peaks of each device of each program, in their order; `process_bytes` is of the GPU, which
// virtual devices share. Devices must be unused simulated ones that answer as the real ones would, with
// unused strategies. Throws what the real run would throw: OutOfMemory, LibraryError or DeviceError.
std::vector<PeakPrediction> predict_peaks(std::span<const PlayedProgram> programs);
// The same for one program on one device.
PeakPrediction predict_peak(const Graph& graph, std::span<const Plan* const> plans, Device& device,
                            Allocator& allocator);

}  // namespace headroom
