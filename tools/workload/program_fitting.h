// Finds the largest batch of a program that fits, by tracing it again with each batch that is tried. Knows no
// command line and no tracer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "answers/predict.h"
#include "runtime/app/setup.h"
#include "tools/workload/torch_changes.h"
#include "trace/trace.h"

namespace headroom {

// A batch that was traced.
struct TracedBatch {
  int64_t batch = 0;
  Prediction prediction;  // on the device less the margin
  bool lacks_margin = false;   // it runs on the device, but leaves less than the margin
  std::string reason;          // why it does not fit, without the margin where that is not the reason
  std::string failed_in;       // the module of the allocation without room
  int64_t growing_bytes = 0;   // the most of activations and inputs that is live
};

struct ProgramFit {
  int64_t batch = 0;  // 0: none fits
  std::vector<TracedBatch> trials;
  std::string stopped_by;            // why no larger batch, one line
  int64_t next_batch = 0;            // the smallest that does not fit; 0: none was tried
  std::vector<TorchChange> changes;  // each alone makes it fit; none where it lacks the margin alone
  // The trial of the batch, or of the only one.
  const TracedBatch& best() const;
};

using TraceBatch = std::function<Trace(int64_t batch)>;
// How the program with that batch is traced with checkpoints.
using CheckpointsOfBatch = std::function<TraceCheckpoints(int64_t batch)>;

// The batch that it returns fits, and the next one does not, unless that is above `max_batch`. Tries few
// batches: where the memory grows evenly, about five. `margin_bytes` of the device stay free. Without
// `trace_again` checkpoints are estimated.
ProgramFit fit_program(const TraceBatch& trace, const RunSetup& setup, int64_t margin_bytes,
                       int64_t max_batch, const CheckpointsOfBatch& trace_again = {});

}  // namespace headroom
