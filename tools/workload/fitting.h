// Finds the largest batch, or the smallest device, with which a net runs: predicts first, then runs. Knows no
// command line and starts no process itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "answers/fit.h"
#include "tools/workload/measure.h"

namespace headroom {

// The options with the same device, and that much memory on it.
RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes);

// Runs a net of a predicted size in another process; returns nothing when it cannot.
using RunElsewhere = std::function<std::optional<Measurement>(const WorkloadOptions&, const Traced&)>;

// Finds the largest batch, see BatchSearch. After a batch whose run fails it tries one at least an eighth
// smaller. Calls `on_batch` before a batch is planned. Throws as trace_of does.
Fit fit_batch(const WorkloadOptions& options, int64_t margin_bytes, int64_t max_batch,
              const RunElsewhere& run, const std::function<void(int64_t batch)>& on_batch = {});

// Finds the least total memory of the device for the batch of the options, see fit_memory. After a size whose
// run fails it tries one a 64th larger.
Fit fit_memory(const WorkloadOptions& options, int64_t margin_bytes, const RunElsewhere& run);

}  // namespace headroom
