// Workloads under strategies and settings side by side: what each run took, and which nobody beats. Knows no
// process and no format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/workload/measurement.h"

namespace headroom::compare {

// One cell of the comparison and what its runs gave.
struct ComparedRow {
  std::string workload;  // "unet, batch 64", or the path of a trace
  std::string strategy;
  std::string settings;            // "plan=packed"; empty where there are none
  std::vector<std::string> words;  // for the process that runs it

  Measurement worst = {};  // the outcome of the first run that failed, the highest peaks of all
  int64_t runs = 0;
  // Of the runs: median, least and most.
  double seconds_per_step = 0, seconds_low = 0, seconds_high = 0;
  bool unbeaten = false;

  bool ok() const { return worst.outcome == "ok"; }
};

// Runs each row `runs` times by run(words), all rows once before any again, so that a machine that slows down
// slows all of them, and marks those that nobody beats. A row that fails is not run again.
void compare(std::vector<ComparedRow>& rows, int64_t runs,
             const std::function<Measurement(const ComparedRow& row, int64_t run)>& run);

// Marks the rows that ran and that no other of the same workload beats. One beats another that takes more of
// the device when it is not clearly slower, and one that takes as much when it is clearly faster: with no run
// as slow as the other's fastest.
void mark_unbeaten(std::vector<ComparedRow>& rows);

}  // namespace headroom::compare
