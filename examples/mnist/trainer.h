// Trains the conv net on one device with one strategy and reports what it took. Knows no command line.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "examples/mnist/dataset.h"
#include "examples/mnist/train_settings.h"
#include "runtime/out_of_memory.h"
#include "runtime/runtime.h"

namespace headroom {

struct TrainResult {
  std::string outcome = "ok";               // "out_of_memory", "library_failure" (of a library or the driver)
  std::string error;                        // one line; empty when all went well
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
  int64_t peak_device_bytes = 0;  // as the driver sees it, others included
  int64_t peak_process_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  std::optional<int64_t>
      predicted_peak_bytes;      // of peak_allocated_bytes; absent when the prediction is a failure
  std::string weights_checksum;  // 16 hexadecimal digits
  // by label, then by prediction
  std::array<std::array<int64_t, Dataset::kClasses>, Dataset::kClasses> confusion{};
};

// One line of JSON with the fields that a program reads (all but log and confusion).
std::string to_json(const TrainResult& result);

// Trains and tests. Out of memory and library failures end in the result, not in an exception, so that
// strategies can be compared; InvalidArgument (bad settings, unreadable weights) is thrown before anything is
// trained. `on_step` is called after each step.
TrainResult train(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                  Runtime& runtime, const std::function<void(const StepReport&)>& on_step = {});

// Fills the result's report, where memory ran out: why, and the smallest change with which the same training
// fits, played on a twin of the device. Takes some tenths of a second.
void explain_failure(const TrainSettings& settings, const Dataset& training, const Dataset& test,
                     const Runtime& runtime, TrainResult& result);

}  // namespace headroom
