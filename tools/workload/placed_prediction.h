// What a program that is placed on several devices takes of each, without computing anything. Knows no
// command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/predict_peak.h"
#include "tools/workload/workload.h"

namespace headroom {

struct DevicePrediction {
  std::string name;            // "/device:GPU:1"
  int64_t variable_bytes = 0;  // weights, optimizer state and data that live there
  int64_t step_bytes = 0;      // the most that a step allocates there: of all its sessions the largest
  PeakPrediction peak = {};    // all zero where the program does not fit
};

struct PlacedPrediction {
  bool fits = false;
  std::string reason;  // why not, one line
  std::vector<DevicePrediction> devices;
  int64_t copies = 0, copied_bytes = 0;  // of a step of the first session
};

// Plays the program, made of the same options, on twins of its devices. Throws InvalidArgument for real GPUs,
// which have no twins that one machine could simulate, and what find_devices throws.
PlacedPrediction predict_placed(const Program& program, const WorkloadOptions& options);

}  // namespace headroom
