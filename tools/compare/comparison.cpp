#include "tools/compare/comparison.h"

#include <algorithm>
#include <cstddef>

namespace headroom::compare {
namespace {

void add(ComparedRow& row, const Measurement& measured, std::vector<double>& seconds) {
  Measurement& worst = row.worst;
  if (row.runs++ == 0) {
    worst = measured;
  } else if (measured.outcome != RunOutcome::kOk) {
    worst.outcome = measured.outcome;
    worst.error = measured.error;
  }
  raise_to(worst, measured);
  worst.overhead_bytes = std::max(worst.overhead_bytes, measured.overhead_bytes);
  worst.fragmentation = std::max(worst.fragmentation, measured.fragmentation);
  worst.driver_seconds = std::max(worst.driver_seconds, measured.driver_seconds);
  if (measured.outcome == RunOutcome::kOk) seconds.push_back(measured.seconds_per_step);
}

bool is_clearly_faster(const ComparedRow& a, const ComparedRow& b) {
  return a.is_simulated ? a.worst.driver_seconds < b.worst.driver_seconds : a.seconds_high < b.seconds_low;
}

bool dominates(const ComparedRow& a, const ComparedRow& b) {
  const int64_t bytes = a.worst.peak_process_bytes, other_bytes = b.worst.peak_process_bytes;
  return bytes < other_bytes ? !is_clearly_faster(b, a) : bytes == other_bytes && is_clearly_faster(a, b);
}

}  // namespace

void compare(std::vector<ComparedRow>& rows, int64_t runs,
             const std::function<Measurement(const ComparedRow& row, int64_t run)>& run) {
  std::vector<std::vector<double>> seconds(rows.size());
  for (int64_t i = 0; i < runs; ++i) {
    for (size_t at = 0; at < rows.size(); ++at) {
      if (i == 0 || rows[at].ok()) add(rows[at], run(rows[at], i), seconds[at]);
    }
  }
  for (size_t at = 0; at < rows.size(); ++at) {
    std::vector<double>& of_row = seconds[at];
    if (of_row.empty()) continue;
    std::ranges::sort(of_row);
    rows[at].seconds_per_step = of_row[of_row.size() / 2];
    rows[at].seconds_low = of_row.front();
    rows[at].seconds_high = of_row.back();
  }
  mark_pareto_optimal(rows);
}

void mark_pareto_optimal(std::vector<ComparedRow>& rows) {
  for (ComparedRow& row : rows) {
    row.is_pareto_optimal = row.ok() && std::ranges::none_of(rows, [&](const ComparedRow& other) {
                              return other.ok() && other.workload == row.workload && dominates(other, row);
                            });
  }
}

}  // namespace headroom::compare
