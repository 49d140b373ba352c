// Memory, time and outcome of a training. Knows no device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answers/out_of_memory.h"
#include "examples/models/mnist/dataset.h"
#include "runtime/app/run_result.h"

namespace headroom {

struct TrainResult : RunResult {
  std::optional<OutOfMemoryReport> report;  // set by explain_failure
  std::string device, strategy;
  std::string data_on, kernels, math;
  int epochs = 0;
  int64_t batch = 0;
  double test_accuracy = 0;     // in [0, 1], at the last evaluation
  double final_loss = 0;        // mean over the last epoch
  double seconds_per_step = 0;  // median over steps, or over pieces of several steps
  double training_seconds = 0;  // all steps and evaluations
  int64_t steps = 0;            // run in all
  int64_t steps_done = 0;       // with those of the training that was resumed
  int end_signal = 0;           // the one that ended the training early; 0: none
  std::vector<float> losses;    // one per step
  std::optional<double> target_accuracy;
  // From the start of the process to the first evaluation that reached the target, if any.
  std::optional<double> seconds_to_target;
  double images_per_second = 0;
  std::string sums;  // transport of gradient sums: "nccl", "gpu" or "host"; empty for one replica
  // by label, then by prediction
  std::array<std::array<int64_t, Dataset::kClasses>, Dataset::kClasses> confusion{};
};

// Return JSON arrays.
std::string to_json(const std::vector<DeviceResult>& devices);
std::string to_json(const std::vector<ReplicaResult>& replicas);

// One line of JSON with all fields but log and confusion.
std::string to_json(const TrainResult& result);

}  // namespace headroom
