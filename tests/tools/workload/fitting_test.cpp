// The search for the largest batch and the least memory, with runs in this process.

#include "tools/workload/fitting.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

// A laptop whose context leaves so little that a few images are too many.
WorkloadOptions tight() {
  WorkloadOptions options;
  options.net = "unet";
  options.step.batch = 2;
  options.step.steps = 2;
  options.runtime.device = "sim:laptop-2gb";
  options.runtime.device_memory_bytes = 800 * kMiB;
  options.runtime.context_bytes = 260 * kMiB;
  return options;
}

Measurement killed() {
  Measurement measured;
  measured.outcome = RunOutcome::kKilled;
  measured.error = "by the test";
  return measured;
}

// Runs in this process, and keeps the results.
class Runs {
 public:
  RunElsewhere here() {
    return
        [this](const WorkloadOptions& options, const Traced&) { return all.emplace_back(measure(options)); };
  }
  bool verified() const { return !all.empty() && all.back().outcome == RunOutcome::kOk; }

  std::vector<Measurement> all;
};

TEST(Fit, TheBatchItFindsRunsAndTheNextOneDoesNot) {
  for (const char* strategy : {"caching", "allow-growth"}) {
    WorkloadOptions options = tight();
    options.runtime.strategy = strategy;
    Runs runs;
    const Fit result = fit_batch(options, 0, 1000, runs.here());
    EXPECT_GT(result.batch, 1);
    EXPECT_TRUE(runs.verified());
    ASSERT_EQ(runs.all.size(), 1u);
    EXPECT_EQ(runs.all[0].peak_process_bytes, result.prediction.total_bytes);
    options.step.batch = result.batch + 1;
    EXPECT_EQ(measure(options).outcome, RunOutcome::kOutOfMemory) << strategy << " " << result.batch;
    EXPECT_NE(result.stopped_by.find("out of memory"), std::string::npos) << result.stopped_by;
  }
}

// If parts of the batch fit at any size, the search would go on for hours.
TEST(Fit, UnderABudgetItPlansFewBatchesAndSaysWhatItHas) {
  WorkloadOptions options;
  options.net = "mlp";
  options.runtime.device = "sim:laptop-2gb";
  options.runtime.strategy = "direct";
  options.runtime.plan = PlanMode::kPacked;
  options.runtime.memory_bytes = 480 * kMiB;
  int planned = 0;
  const RunElsewhere run = [](const WorkloadOptions&, const Traced&) { return std::nullopt; };
  const Fit result = fit_batch(options, 0, 5000, run, [&](int64_t) { ++planned; });
  EXPECT_GT(result.batch, 1);
  EXPECT_LE(planned, 26);
  EXPECT_NE(result.stopped_by, "");
}

TEST(Fit, TheMarginStaysFree) {
  const WorkloadOptions options = tight();
  Runs runs;
  const Fit all = fit_batch(options, 0, 1000, runs.here());
  runs.all.clear();
  const Fit less = fit_batch(options, 16 * kMiB, 1000, runs.here());
  EXPECT_LT(less.batch, all.batch);
  EXPECT_TRUE(runs.verified());
  const int64_t others = 329 * kMiB;
  EXPECT_LE(runs.all[0].peak_process_bytes, (800 - 16) * kMiB - others);
}

TEST(Fit, ABatchThatFailsWhenItIsRunIsGivenUp) {
  int64_t first = 0, runs = 0;
  const RunElsewhere run = [&](const WorkloadOptions& options, const Traced&) -> std::optional<Measurement> {
    if (runs++ == 0) first = options.step.batch;
    if (2 * options.step.batch > first) return killed();
    return Measurement{};
  };
  const Fit result = fit_batch(tight(), 0, 1000, run);
  EXPECT_LE(2 * result.batch, first);
  EXPECT_TRUE(result.fits);
  EXPECT_GT(runs, 1);
  EXPECT_NE(result.stopped_by.find("by the test"), std::string::npos) << result.stopped_by;
}

TEST(Fit, NoBatchIsFoundWhereNoneRuns) {
  const RunElsewhere run = [](const WorkloadOptions&, const Traced&) -> std::optional<Measurement> {
    return killed();
  };
  const Fit result = fit_batch(tight(), 0, 1000, run);
  EXPECT_EQ(result.batch, 0);
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.stopped_by, "by the test");
}

TEST(Fit, ABatchThatLacksTheMarginAloneIsNotCalledOutOfMemory) {
  const RunElsewhere run = [](const WorkloadOptions&, const Traced&) { return std::nullopt; };
  const Fit all = fit_batch(tight(), 0, 1000, run);
  const Fit less = fit_batch(tight(), 16 * kMiB, 1000, run);
  ASSERT_LT(less.batch, all.batch);
  EXPECT_EQ(less.stopped_by,
            "batch " + std::to_string(less.batch + 1) + " would leave less than 16.00 MiB free");
  EXPECT_TRUE(all.stopped_by.starts_with("batch " + std::to_string(all.batch + 1) + ": out of memory"))
      << all.stopped_by;
}

TEST(Fit, WhatCannotBeRunIsPredicted) {
  const RunElsewhere run = [](const WorkloadOptions&, const Traced&) { return std::nullopt; };
  const Fit result = fit_batch(tight(), 0, 1000, run);
  EXPECT_GT(result.batch, 0);
  EXPECT_TRUE(result.fits);
}

TEST(Fit, TakesNoMoreThanIsWanted) {
  Runs runs;
  const Fit result = fit_batch(tight(), 0, 2, runs.here());
  EXPECT_EQ(result.batch, 2);
  EXPECT_EQ(result.stopped_by, "--most is the largest batch to try");
}

TEST(Fit, TheLeastMemoryRunsAndAPageLessDoesNot) {
  WorkloadOptions options = tight();
  Runs runs;
  const Fit result = fit_memory(options, 0, runs.here());
  EXPECT_TRUE(runs.verified());
  EXPECT_LT(result.device_bytes, 800 * kMiB);
  options.runtime.device_memory_bytes = result.device_bytes - 2 * kMiB;
  EXPECT_EQ(measure(options).outcome, RunOutcome::kOutOfMemory);
}

TEST(Fit, NoMemoryIsFoundWhereNoneDoes) {
  WorkloadOptions options = tight();
  options.runtime.strategy = "hard-limit=4MiB";  // on any device
  Runs runs;
  const Fit result = fit_memory(options, 0, runs.here());
  EXPECT_EQ(result.device_bytes, 0);
  EXPECT_NE(result.stopped_by, "");
}

}  // namespace
}  // namespace headroom
