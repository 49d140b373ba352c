// Finds the largest batch, or the smallest device, with which a program runs: predicts first, then runs.
// Knows no command line and starts no process itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answers/predict.h"
#include "tools/workload/measure.h"

namespace headroom {

// "batch 309 would leave less than 64.00 MiB free".
std::string lacks_margin_text(std::string_view what, int64_t margin_bytes);

// "64.00 MiB kept free; why not more: ..."; without a margin the reason alone.
std::string why_not_text(int64_t margin_bytes, std::string_view more_or_less, std::string_view reason);

// The options with the same device, and that much memory on it.
RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes);

struct FitSettings {
  int64_t margin_bytes = 0;  // must stay free beside the peak
  int64_t max_batch = 1;
  std::function<void(int64_t batch)> on_batch = {};  // called before a batch is planned
};

// A real run of a predicted size.
struct FitTrial {
  int64_t batch = 0;
  int64_t device_bytes = 0;
  Measurement measurement;
};

struct FitResult {
  int64_t batch = 0;         // 0: none fits
  int64_t device_bytes = 0;  // total of the device
  Traced traced;             // that batch, or batch 1 when none fits
  Prediction prediction;     // of that batch on that device; of batch 1 when none fits
  bool verified = false;
  std::vector<FitTrial> trials;
  std::string stopped_by;  // why no larger batch, or no smaller device; one line
};

// Runs the options in another process; returns nothing when it cannot, and then nothing is verified.
using RunElsewhere = std::function<std::optional<Measurement>(const WorkloadOptions&)>;

// Finds the largest batch as EdgeSearch::largest does, under a budget with 24 plans at most. After a batch
// whose run fails it tries one at least an eighth smaller. Throws as Predictor does.
FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

// Finds the least total memory of the device for the batch of the options, see Predictor::least_total_bytes.
// After a size whose run fails it tries one a 64th larger. Nothing fits when device_bytes is 0.
FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run);

}  // namespace headroom
