// Predictions against real runs on simulated GPUs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

// Small enough to run in moments.
WorkloadOptions small(const std::string& net) {
  WorkloadOptions options;
  options.net = net;
  options.step.batch = net == kMnist ? 64 : 1;
  options.step.steps = 2;
  options.runtime.device = "sim:laptop-2gb";
  return options;
}

Prediction predict(const WorkloadOptions& options) {
  return headroom::predict(trace_of(options), setup_to_fit(options.runtime));
}

int64_t part(const WorkloadOptions& options, std::string_view name) {
  const Traced program = trace_of(options);
  const RunSetup setup = setup_to_fit(options.runtime);
  const Prediction prediction = headroom::predict(program, setup);
  for (const auto& [known, bytes] :
       parts_of(program, setup, prediction, live_at_peak(program, setup, prediction))) {
    if (known == name) return bytes;
  }
  return 0;
}

class EveryNet : public testing::TestWithParam<std::string> {};

// The promise is 0 bytes for packed plans and 4 MiB for others; a simulated GPU gives 0 for both.
TEST_P(EveryNet, TakesWhatIsPredictedToTheByte) {
  const std::vector<std::string> all = {"allow-growth", "caching", "direct", "mapped", "hard-limit=600MiB"};
  const bool is_slow = GetParam() == kMnist;  // its digits take long to draw
  for (const PlanMode plan : enum_values<PlanMode>()) {
    for (const std::string& strategy : is_slow ? std::vector(1, all[0]) : all) {
      WorkloadOptions options = small(GetParam());
      options.runtime.plan = plan;
      options.runtime.strategy = strategy;
      const Prediction predicted = predict(options);
      const Measurement measured = measure(options);
      const std::string label = fmt::format("{} {} {}", to_string(plan), strategy, measured.error);
      ASSERT_EQ(measured.outcome, RunOutcome::kOk) << label;
      EXPECT_TRUE(predicted.fits) << label;
      EXPECT_EQ(predicted.total_bytes, measured.peak_process_bytes) << label;
      EXPECT_EQ(predicted.reserved_bytes, measured.peak_reserved_bytes) << label;
      EXPECT_EQ(predicted.allocated_bytes, measured.peak_allocated_bytes) << label;
    }
  }
}

// Small nets have up to four pages more.
TEST_P(EveryNet, ReservesByDefaultAtMostATenthMoreThanItAllocates) {
  for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kPacked}) {
    WorkloadOptions options;
    options.net = GetParam();
    options.step = {.batch = 32, .steps = 2};
    options.runtime = {.device = "sim", .plan = plan};
    const Measurement run = measure(options);
    ASSERT_EQ(run.outcome, RunOutcome::kOk) << run.error;
    const int64_t most = std::max(run.peak_allocated_bytes / 10, 8 * kMiB);
    EXPECT_LE(run.peak_reserved_bytes, run.peak_allocated_bytes + most) << to_string(plan);
  }
}

// On the least device that is predicted to do, and on one a page smaller.
TEST_P(EveryNet, FitsWhereThatIsPredictedAndNotBelow) {
  for (const std::string strategy : {"allow-growth", "grab-all", "pool"}) {
    if (GetParam() == kMnist && strategy != "allow-growth") continue;  // its digits take long to draw
    WorkloadOptions options = small(GetParam());
    options.runtime.strategy = strategy;
    const Prediction predicted = predict(options);
    const int64_t total = 2002 * kMiB - *predicted.margin_bytes;
    options.runtime.device_memory_bytes = total;
    EXPECT_EQ(measure(options).outcome, RunOutcome::kOk) << strategy;
    options.runtime.device_memory_bytes = total - 2 * kMiB;
    EXPECT_FALSE(predict(options).fits) << strategy;
    EXPECT_NE(measure(options).outcome, RunOutcome::kOk) << strategy;
  }
}

TEST_P(EveryNet, CategoriesAddUpAndNoneIsNegative) {
  for (const char* strategy : {"grab-all", "allow-growth", "direct"}) {
    WorkloadOptions options = small(GetParam());
    options.runtime.strategy = strategy;
    options.runtime.device = "sim:card-6gb";
    const Traced program = trace_of(options);
    const RunSetup setup = setup_to_fit(options.runtime);
    const Prediction predicted = headroom::predict(program, setup);
    const LiveSet live = live_at_peak(program, setup, predicted);
    int64_t sum = 0;
    for (const auto& [name, bytes] : parts_of(program, setup, predicted, live)) {
      sum += bytes;
      EXPECT_GE(bytes, 0) << name;
    }
    EXPECT_EQ(sum, predicted.total_bytes);
    EXPECT_GT(part(options, "weights"), 0);
    EXPECT_GT(part(options, "optimizer state"), 0);
    EXPECT_NE(live.where, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryNet, testing::ValuesIn(net_names()),
                         [](const auto& test) { return test.param; });

// If the whole device was enough, it is played once; only smaller capacities must be tried.
TEST(Prediction, PlaysAFewTimesHoweverLargeDeviceAndBatchAre) {
  for (const char* strategy : {"allow-growth", "caching", "pool", "stream-ordered", "direct"}) {
    for (const int64_t batch : {16, 64}) {
      WorkloadOptions options = small("unet");
      options.step.batch = batch;
      options.runtime.device = "sim:h200";
      options.runtime.strategy = strategy;
      const Traced program = trace_of(options);
      const RunSetup setup = setup_to_fit(options.runtime);
      const Prediction prediction = headroom::predict(program, setup);
      EXPECT_TRUE(prediction.fits);
      EXPECT_LE(prediction.plays, 12) << strategy << ", batch " << batch << "; bisecting alone takes 30";
      RunSetup least = setup;
      least.device.total_bytes -= *prediction.margin_bytes;
      EXPECT_TRUE(fits(program, least)) << strategy;
      least.device.total_bytes -= setup.device.granularity_bytes;
      EXPECT_FALSE(fits(program, least)) << strategy;
    }
  }
}

TEST(Prediction, OptimizerStateIsTwiceTheWeightsUnderAdamAndNoneUnderSgd) {
  WorkloadOptions options = small("mlp");
  EXPECT_EQ(part(options, "optimizer state"), 2 * part(options, "weights"));
  options.step.optimizer = "sgd";
  EXPECT_EQ(part(options, "optimizer state"), 0);
}

TEST(Prediction, WhatDoesNotFitSaysHowMuchItLacks) {
  WorkloadOptions options = small("unet");
  options.step.batch = 512;
  const Prediction on_laptop = predict(options);
  EXPECT_FALSE(on_laptop.fits);
  EXPECT_LT(*on_laptop.margin_bytes, 0);
  EXPECT_NE(on_laptop.reason.find("out of memory"), std::string::npos) << on_laptop.reason;
  options.runtime.device_memory_bytes = 2002 * kMiB - *on_laptop.margin_bytes;
  EXPECT_TRUE(predict(options).fits);
  *options.runtime.device_memory_bytes -= 2 * kMiB;
  EXPECT_FALSE(predict(options).fits);
}

TEST(Prediction, ATightLimitIsWhatTheMarginCounts) {
  WorkloadOptions options = small("mlp");
  options.runtime.strategy = "hard-limit";
  options.runtime.limit_bytes = 8 * kMiB;
  const Prediction predicted = predict(options);
  EXPECT_FALSE(predicted.fits);
  EXPECT_LT(*predicted.margin_bytes, 0);
  EXPECT_GT(*predicted.margin_bytes, -8 * kMiB);
  options.runtime.limit_bytes = 8 * kMiB - *predicted.margin_bytes;
  EXPECT_TRUE(predict(options).fits);
  EXPECT_EQ(*predict(options).margin_bytes, 0);
}

TEST(Prediction, APoolOfAllLacksWhatLibrariesNeed) {
  WorkloadOptions options = small("mlp");
  options.runtime.memory_fraction = 1;
  options.runtime.strategy = "grab-all";
  const Prediction predicted = predict(options);
  EXPECT_FALSE(predicted.fits);
  EXPECT_LT(*predicted.margin_bytes, 0);
  EXPECT_EQ(predicted.reason, measure(options).error);  // word for word
}

TEST(Prediction, OthersMayHoldEverything) {
  WorkloadOptions options = small("mlp");
  options.runtime.others_bytes = 2002 * kMiB;
  const Prediction predicted = predict(options);
  EXPECT_FALSE(predicted.fits);
  EXPECT_LT(*predicted.margin_bytes, 0);
}

// Below it, context and libraries alone exceed the limit, which make_allocator refuses.
TEST(Prediction, ALimitOnTheProcessHasAMarginToo) {
  WorkloadOptions options = small("lenet");
  options.runtime.strategy = "allow-growth+process-limit=500MiB";
  const Prediction predicted = predict(options);
  EXPECT_TRUE(predicted.fits);
  EXPECT_GT(*predicted.margin_bytes, 0);
  EXPECT_LT(*predicted.margin_bytes, 69 * kMiB);
}

TEST(Prediction, TheCpuIsRefused) {
  WorkloadOptions options = small("mlp");
  options.runtime.device = "cpu";
  EXPECT_THROW(setup_to_fit(options.runtime), InvalidArgument);
}

}  // namespace
}  // namespace headroom
