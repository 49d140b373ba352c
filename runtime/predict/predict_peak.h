// What a program will take, to the byte, without computing anything: its plans are played against a twin of
// the device with the same strategy. Knows no kernel.
#pragma once

#include <span>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/device_set.h"

namespace headroom {

struct PeakPrediction {
  int64_t allocated_bytes = 0;  // highest sum of live blocks, variables included
  int64_t reserved_bytes = 0;
  int64_t process_bytes = 0;  // highest of this process as the driver sees it: context and libraries included
  double fragmentation = 0;   // Statistics' own, when most was allocated
};

// What one replica, or a program alone, runs: sessions over one graph, and where.
struct PlayedProgram {
  const Graph* graph = nullptr;
  std::vector<const Plan*> plans;  // of each session
  DeviceSet devices;
};

// Plays variables, arenas and steps of all programs in turn, each with what it holds throughout, until a
// whole round raises no peak, and says what each device of each program takes, in their order;
// `process_bytes` is of the GPU, which virtual devices share. Devices must be fresh simulated ones that
// answer as the real ones would, with fresh strategies. Throws what the real run would throw: OutOfMemory or
// LibraryError.
std::vector<PeakPrediction> predict_peaks(std::span<const PlayedProgram> programs);
// The same of one program on one device.
PeakPrediction predict_peak(const Graph& graph, std::span<const Plan* const> plans, Device& device,
                            Allocator& allocator);

}  // namespace headroom
