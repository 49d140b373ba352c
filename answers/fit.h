// Finds the largest batch, or the smallest device, with which a workload fits. Knows no command line and runs
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "answers/workload.h"
#include "base/edge.h"
#include "runtime/app/setup.h"

namespace headroom {

// "batch 309 would leave less than 64.00 MiB free".
std::string lacks_margin_text(std::string_view what, int64_t margin_bytes);

// A batch that was tried.
struct TriedBatch {
  int64_t batch = 0;
  Prediction prediction = {};  // on the device less the margin; a cheap search gives only the verdict
  bool is_too_large = false;   // for any strategy
  bool lacks_margin = false;   // it fits on the device, but leaves less than the margin
  std::string reason = {};     // why it does not fit, without the margin unless that is the reason
  int64_t growing_bytes = 0;   // the most of activations and inputs that is live
};

// The answer of a search for a batch or for a device.
struct Fit {
  int64_t batch = 0;                // the largest that fits; 0: none does, or it was not searched for
  int64_t device_bytes = 0;         // least memory of the device, with the margin; 0: as for the batch
  Traced program = {};              // with that batch, or the smallest one
  Prediction prediction = {};       // of that program, on the device less the margin
  std::string stopped_by = {};      // why no larger batch or smaller device, one line
  int64_t next_batch = 0;           // the smallest that does not fit; 0: none was tried
  std::optional<Traced> next = {};  // it, of a search of few batches, unless it lacks the margin alone
  bool fits = false;                // a batch, or a device, was found
};

// Searches for the largest batch. If a workload is traced quickly, it tries all powers of two and samples
// (see EdgeSearch::largest). Otherwise it tries few batches: about five if memory grows evenly.
class BatchSearch {
 public:
  // `work` is what a search may do, and what a trace counts as. `margin_bytes` of each GPU stay free. Batches
  // are multiples of `unit`.
  BatchSearch(Workload workload, SearchWork work, const RunSetup& setup, int64_t margin_bytes,
              int64_t unit = 1);

  // The batch that it returns fits, and the next one does not, unless that is above `max_batch`. Throws as
  // the workload does for the smallest batch; a larger one that it refuses does not fit.
  Fit largest(int64_t max_batch);
  // The setup with the margin held by others.
  const RunSetup& setup() const { return setup_; }
  // In the order in which they were tried.
  const std::vector<TriedBatch>& trials() const { return trials_; }

 private:
  const TriedBatch* find(int64_t batch) const;
  const TriedBatch& attempt(int64_t batch, bool is_long);
  TriedBatch judge(int64_t batch, const Traced& program) const;
  int64_t end(int64_t most);
  // The program with that batch, traced again only if it was not kept.
  Traced trace(int64_t batch);

  const Workload workload_;
  const SearchWork work_;
  const RunSetup whole_, setup_;  // without and with the margin held by others
  const int64_t margin_bytes_, unit_;
  std::vector<TriedBatch> trials_;
  // Traced next to the edge: the largest batch that fits, and the smallest above it that does not.
  std::pair<int64_t, Traced> fitting_, failing_;
};

// Finds the least total memory of the GPUs, see least_total_bytes().
Fit fit_memory(const Traced& program, RunSetup setup, int64_t margin_bytes);

}  // namespace headroom
