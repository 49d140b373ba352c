// What a training took and how it ended. Knows no device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/mnist/dataset.h"
#include "runtime/out_of_memory.h"

namespace headroom {

// The memory of a replica, and what its weights are in the end.
struct ReplicaFigures {
  int64_t peak_device_bytes = 0;  // of the GPU that it is on, as the driver sees it, others included
  int64_t peak_process_bytes = 0;
  int64_t peak_reserved_bytes = 0;  // of the replica's own pool
  int64_t peak_allocated_bytes = 0;
  // Of peak_allocated_bytes; absent when the prediction is a failure.
  std::optional<int64_t> predicted_peak_bytes;
  int64_t optimizer_bytes = 0;   // of it the optimizer's state
  std::string weights_checksum;  // 16 hexadecimal digits; empty where training failed
};

struct ReplicaResult : ReplicaFigures {
  std::string device;     // "/GPU:1"
  std::string host = {};  // empty where all replicas are threads of one process
};

// Its figures are the largest of any replica, its weights those of all.
struct TrainResult : ReplicaFigures {
  std::string outcome =
      "ok";           // "out_of_memory", "library_failure" (of a library, the driver or a collective)
  std::string error;  // one line; empty when all went well
  std::optional<int> failed_rank;           // of the replica that failed, where there are several
  std::vector<std::string> log;             // lines that led to a library's failure
  std::optional<MemoryFacts> memory;        // what was known when memory ran out
  std::optional<OutOfMemoryReport> report;  // see explain_failure
  std::string device, strategy;
  std::string data_on, kernels, math;
  int epochs = 0;
  int64_t batch = 0;
  double test_accuracy = 0;     // in [0, 1], at the last evaluation
  double final_loss = 0;        // mean over the last epoch
  double seconds_per_step = 0;  // median; where many steps run at once, of their mean
  double training_seconds = 0;  // all steps and evaluations
  int64_t steps = 0;            // all that were run
  std::optional<double> target_accuracy;
  // Since the process started, at the first evaluation that reached the target; absent when none did.
  std::optional<double> seconds_to_target;
  double images_per_second = 0;
  std::vector<ReplicaResult> replicas;  // by rank, one at least
  std::string sums;  // by what replicas sum gradients: "nccl", or "host" memory; empty without others
  // by label, then by prediction
  std::array<std::array<int64_t, Dataset::kClasses>, Dataset::kClasses> confusion{};
};

// As a JSON array.
std::string to_json(const std::vector<ReplicaResult>& replicas);

// One line of JSON with the fields that a program reads (all but log and confusion).
std::string to_json(const TrainResult& result);

}  // namespace headroom
