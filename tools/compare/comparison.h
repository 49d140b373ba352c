// Workloads under strategies and settings: the memory of each run, and the Pareto-optimal rows. Knows no
// process and no format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/workload/measure.h"

namespace headroom::compare {

// One row of the comparison and the results of its runs.
struct ComparedRow {
  std::string workload;  // "unet, batch 64", or the path of a trace
  std::string strategy;
  std::string settings;            // "plan=packed"; may be empty
  std::vector<std::string> words;  // arguments of the process that runs it
  bool is_simulated = false;       // its steps take what the host needs to compute, or to replay, them
  bool is_lower_bound = false;     // a real GPU takes more, see tools/workload/lower_bound.h

  Measurement worst = {};  // the first failure, if any, and the highest peaks of all runs
  int64_t runs = 0;
  // Median, minimum and maximum over the runs.
  double seconds_per_step = 0, seconds_low = 0, seconds_high = 0;
  bool is_pareto_optimal = false;

  bool ok() const { return worst.outcome == RunOutcome::kOk; }
};

// Calls run(row, i) for i in [0, runs), every row once before any row again, so that a machine that slows
// down slows all rows. Then marks the Pareto-optimal rows. A row that failed is not run again.
void compare(std::vector<ComparedRow>& rows, int64_t runs,
             const std::function<Measurement(const ComparedRow& row, int64_t run)>& run);

// Marks the successful rows that no other row of the same workload dominates. A row dominates one that takes
// more memory if it is not clearly slower, and one that takes the same memory if it is clearly faster.
// Clearly faster: its slowest run is faster than the other's fastest run; on a simulated device, less time in
// driver calls.
void mark_pareto_optimal(std::vector<ComparedRow>& rows);

}  // namespace headroom::compare
