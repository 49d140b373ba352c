// Training on a GPU compared with the CPU, and with other runs on the GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "device/gpus.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "tests/require_cuda.h"

namespace headroom {
namespace {

class CudaTrainingTest : public CudaTest {
 protected:
  struct Run {
    TrainResult result;
    std::vector<float> losses;
  };

  Run train_on(const char* device, const TrainSettings& settings) const {
    return train_with({.device = device, .strategy = "allow-growth"}, settings);
  }

  Run train_with(const RuntimeOptions& options, TrainSettings settings) const {
    Run run;
    Runtime runtime(options);
    settings.placed = parse_scopes_on_devices(options.place);
    run.result = train(settings, training_, test_, runtime,
                       [&](const StepReport& report) { run.losses.push_back(report.loss); });
    return run;
  }

  static TrainSettings short_training() {
    TrainSettings settings;
    settings.epochs = 2;
    settings.batch = 32;
    settings.plan = PlanMode::kParallel;
    return settings;
  }

  const Dataset training_ = draw_digits(1500, 1), test_ = draw_digits(300, 1, 1500);
};

TEST_F(CudaTrainingTest, FollowsTheLossesOfTheCpu) {
  TrainSettings settings = short_training();
  const Run cpu = train_on("cpu", settings);
  struct Row {
    Math math;
    float at_first, later;
  };
  // The first losses differ by rounding of operands to 24, 11, 8 and 11 bits of mantissa over six layers.
  // Each step magnifies the difference, but the means over an epoch stay close.
  for (const Row& row : {Row{Math::kF32, 1e-5f, 0.03f}, Row{Math::kTf32, 2e-3f, 0.05f},
                         Row{Math::kBf16, 2e-2f, 0.1f}, Row{Math::kF16, 2e-3f, 0.05f}}) {
    for (bool fused : {true, false}) {
      settings.math = row.math;
      settings.fused = fused;
      settings.loss_scale = row.math == Math::kF16 ? 1024.0f : 1.0f;
      const Run gpu = train_on("cuda", settings);
      const std::string what = gpu.result.math + " " + gpu.result.kernels;
      ASSERT_EQ(gpu.result.outcome, RunOutcome::kOk) << what << ": " << gpu.result.error;
      ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
      EXPECT_NEAR(gpu.losses[0], cpu.losses[0], row.at_first * cpu.losses[0]) << what;
      const auto mean_of = [](const std::vector<float>& losses, bool second) {
        const auto half = static_cast<long>(losses.size() / 2);
        double sum = 0;
        for (auto i = losses.begin() + (second ? half : 0); i != losses.begin() + half + (second ? half : 0);
             ++i)
          sum += static_cast<double>(*i);
        return sum / static_cast<double>(half);
      };
      for (bool second : {false, true}) {
        const double expected = mean_of(cpu.losses, second);
        EXPECT_NEAR(mean_of(gpu.losses, second), expected, static_cast<double>(row.later) * expected + 0.02)
            << what << " epoch " << 1 + second;
      }
      EXPECT_GT(gpu.result.test_accuracy, cpu.result.test_accuracy - 0.03) << what;
    }
  }
}

TEST_F(CudaTrainingTest, GivesTheSameBitsForEveryRunPlanAndDataPlace) {
  TrainSettings settings = short_training();
  for (bool fused : {true, false}) {
    settings.fused = fused;
    std::string checksum;
    std::vector<float> losses;
    for (DataOn data_on : {DataOn::kDevice, DataOn::kHost}) {
      for (PlanMode mode :
           {PlanMode::kParallel, PlanMode::kParallel, PlanMode::kPacked, PlanMode::kDynamic}) {
        settings.data_on = data_on;
        settings.plan = mode;
        const Run run = train_on("cuda", settings);
        ASSERT_EQ(run.result.outcome, RunOutcome::kOk) << run.result.error;
        if (checksum.empty()) {
          checksum = run.result.weights_checksum;
          losses = run.losses;
        }
        EXPECT_EQ(run.result.weights_checksum, checksum) << to_string(mode) << " " << run.result.data_on;
        EXPECT_EQ(run.losses, losses) << to_string(mode) << " " << run.result.data_on;
      }
    }
  }
}

TEST_F(CudaTrainingTest, ThePredictedPeakEqualsTheMeasuredOne) {
  for (PlanMode mode : {PlanMode::kDynamic, PlanMode::kPacked, PlanMode::kParallel}) {
    TrainSettings settings = short_training();
    settings.plan = mode;
    const TrainResult result = train_on("cuda", settings).result;
    ASSERT_EQ(result.outcome, RunOutcome::kOk) << result.error;
    EXPECT_EQ(result.predicted_peak_bytes, result.peak_allocated_bytes) << to_string(mode);
  }
}

void expect_predicted_peaks(const TrainResult& result) {
  for (const DeviceResult& device : result.devices) {
    EXPECT_EQ(device.predicted_peak_bytes, device.peak_allocated_bytes) << device.device;
  }
}

// One kernel per op: fused ones of a net that is cut elsewhere may round otherwise.
TEST_F(CudaTrainingTest, ReplicasSpreadOverGpusGiveTheBitsOfWholeOnes) {
  if (visible_gpus().size() < 4) GTEST_SKIP() << "needs four GPUs";
  TrainSettings settings = short_training();
  settings.replicas = 2;
  settings.fused = false;
  RuntimeOptions options{.device = "cuda", .strategy = "allow-growth"};
  const Run whole = train_with(options, settings);
  ASSERT_EQ(whole.result.outcome, RunOutcome::kOk) << whole.result.error;
  options.place = "dense=/GPU:1";
  options.device_policy = DevicePolicy::kSilent;
  for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kPacked, PlanMode::kParallel}) {
    settings.plan = plan;
    const Run spread = train_with(options, settings);
    ASSERT_EQ(spread.result.outcome, RunOutcome::kOk) << spread.result.error;
    EXPECT_EQ(spread.result.sums, whole.result.sums);
    EXPECT_EQ(spread.result.devices.size(), 4u);
    EXPECT_EQ(spread.result.weights_checksum, whole.result.weights_checksum) << to_string(plan);
    EXPECT_EQ(spread.losses, whole.losses) << to_string(plan);
    expect_predicted_peaks(spread.result);
  }
}

TEST_F(CudaTrainingTest, ReplicasSpreadOverVirtualDevicesOfOneGpuSumThroughTheHost) {
  TrainSettings settings = short_training();
  const Run alone = train_on("cuda", settings);
  settings.replicas = 2;
  const RuntimeOptions options{.device = "cuda",
                               .strategy = "allow-growth",
                               .place = "dense=/GPU:1",
                               .device_policy = DevicePolicy::kSilent,
                               .virtual_devices = "0:512MiB,512MiB,512MiB,512MiB"};
  const Run spread = train_with(options, settings);
  ASSERT_EQ(spread.result.outcome, RunOutcome::kOk) << spread.result.error;
  EXPECT_EQ(spread.result.sums, "host");
  EXPECT_NEAR(spread.losses[0], alone.losses[0], 2e-3f * alone.losses[0]);
  EXPECT_GT(spread.result.test_accuracy, alone.result.test_accuracy - 0.03);
  expect_predicted_peaks(spread.result);
}

}  // namespace
}  // namespace headroom
