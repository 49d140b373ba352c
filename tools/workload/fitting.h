// Finds the largest batch, or the smallest device, with which a net runs: predicts first, then runs. Knows no
// command line and starts no process itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answers/fit.h"
#include "tools/workload/measure.h"

namespace headroom {

// A real run of a predicted size.
struct FitRun {
  int64_t batch = 0, device_bytes = 0;
  Measurement measurement = {};
};

struct FitResult : Fit {
  std::vector<FitRun> runs = {};
  bool verified = false;  // the last run succeeded
  bool fits = false;
};

// The options with the same device, and that much memory on it.
RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes);

struct FitSettings {
  int64_t margin_bytes = 0;  // must stay free beside the peak
  int64_t max_batch = 1;
  std::function<void(int64_t batch)> on_batch = {};  // called before a batch is planned
};

// Runs a net in another process; returns nothing when it cannot, and then nothing is verified.
using RunElsewhere = std::function<std::optional<Measurement>(const WorkloadOptions&, const Traced&)>;

// Finds the largest batch, see BatchSearch. After a batch whose run fails it tries one at least an eighth
// smaller. Throws as trace_of does.
FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

// Finds the least total memory of the device for the batch of the options, see fit_memory. After a size whose
// run fails it tries one a 64th larger.
FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

}  // namespace headroom
