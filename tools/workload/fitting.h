// The largest batch, or the smallest device, that a program will do with: predicted first, then run. Knows no
// command line and starts no process itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/workload/measurement.h"
#include "tools/workload/prediction.h"

namespace headroom {

struct FitSettings {
  int64_t margin_bytes = 0;  // that must stay free beside the peak
  int64_t most_batch = 1;    // the largest that is wanted
};

// A real run of a size that was predicted to fit.
struct FitTrial {
  int64_t batch = 0;
  int64_t device_bytes = 0;
  Measurement measurement;
};

struct FitResult {
  int64_t batch = 0;         // 0: none fits
  int64_t device_bytes = 0;  // total of the device
  Prediction prediction;     // of that batch on that device; of batch 1 where none fits
  bool verified = false;
  std::vector<FitTrial> trials;
  std::string stopped_by;  // why it is not more, or not less; one line
};

// Runs the options as they are, elsewhere; nothing where that cannot be done, which is then no verification.
using RunElsewhere = std::function<std::optional<Measurement>(const WorkloadOptions&)>;

// The largest batch found, as largest_in finds it. A batch whose run fails is given up for one that is an
// eighth smaller at least. Throws as Predictor does.
FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

// The least total memory of the device for the batch of the options, see Predictor::least_total_bytes. A size
// whose run fails is given up for one that is a 64th larger. Nothing fits where device_bytes is 0.
FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

}  // namespace headroom
