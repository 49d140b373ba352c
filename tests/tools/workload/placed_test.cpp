// Nets of the zoo over several devices: the prediction for each, and the reason if one does not fit.

#include <gtest/gtest.h>

#include "answers/predict.h"
#include "base/errors.h"
#include "tools/workload/explain_failure.h"
#include "tools/workload/fitting.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

WorkloadOptions two_layers_apart(const char* device, const char* virtual_devices) {
  WorkloadOptions options;
  options.net = "mlp";
  options.step.batch = 4;
  options.step.steps = 2;
  options.runtime.device = device;
  options.runtime.virtual_devices = virtual_devices;
  options.runtime.place = "mlp/dense2=/GPU:1";
  options.runtime.device_policy = DevicePolicy::kSilent;
  return options;
}

Prediction predict_placed(const WorkloadOptions& options) {
  return headroom::predict(trace_of(options), setup_to_fit(options.runtime));
}

TEST(PlacedWorkloads, TakeOfEachDeviceWhatIsPredicted) {
  for (const char* virtual_devices : {"", "0:1GiB,1GiB"}) {
    for (const char* strategy : {"allow-growth", "caching", "direct"}) {
      for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kPacked}) {
        WorkloadOptions options = two_layers_apart("sim:four-2080ti", virtual_devices);
        options.runtime.strategy = strategy;
        options.runtime.plan = plan;
        const Prediction predicted = predict_placed(options);
        const Measurement measured = measure(options);
        ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
        ASSERT_EQ(measured.devices.size(), 2u);
        ASSERT_EQ(predicted.devices.size(), 2u);
        EXPECT_GT(trace_of(options).copies, 0);
        for (size_t i = 0; i < 2; ++i) {
          const DeviceResult& device = measured.devices[i];
          const PlayedDevice& peak = predicted.devices[i];
          EXPECT_EQ(device.peak_allocated_bytes, peak.statistics.allocated.peak)
              << strategy << " " << to_string(plan);
          EXPECT_EQ(device.peak_reserved_bytes, peak.statistics.reserved.peak)
              << strategy << " " << to_string(plan);
          EXPECT_EQ(device.peak_process_bytes, peak.process_bytes) << strategy << " " << to_string(plan);
        }
        EXPECT_EQ(measured.peak_process_bytes, predicted.total_bytes);
      }
    }
  }
}

TEST(PlacedWorkloads, TheMarginIsThatOfTheFullestDevice) {
  WorkloadOptions options = two_layers_apart("sim", "0:12MiB,24MiB");
  options.runtime.strategy = "direct";
  const Prediction predicted = predict_placed(options);
  ASSERT_TRUE(predicted.fits) << predicted.reason;
  const int64_t limits[] = {(12 << 20) - *predicted.margin_bytes, (24 << 20) - *predicted.margin_bytes};
  const auto with_limits = [&](int64_t less) {
    options.runtime.virtual_devices =
        "0:" + std::to_string(limits[0] - less) + "," + std::to_string(limits[1] - less);
    return measure(options).outcome;
  };
  EXPECT_EQ(with_limits(0), RunOutcome::kOk);
  EXPECT_EQ(with_limits(2 << 20), RunOutcome::kOutOfMemory);
}

TEST(PlacedWorkloads, FitTheLargestBatchThatAllDevicesHold) {
  WorkloadOptions options = two_layers_apart("sim", "0:12MiB,24MiB");
  std::vector<Measurement> runs;
  const Fit found = fit_batch(options, 0, 10000, [&](const WorkloadOptions& tried, const Traced&) {
    return runs.emplace_back(measure(tried));
  });
  EXPECT_GT(found.batch, 1);
  EXPECT_TRUE(found.fits);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].outcome, RunOutcome::kOk);
  options.step.batch = found.batch + 1;
  EXPECT_EQ(measure(options).outcome, RunOutcome::kOutOfMemory);
}

TEST(PlacedWorkloads, OneThatFindsNoRoomIsExplainedByItsDevice) {
  WorkloadOptions options = two_layers_apart("sim", "0:64MiB,4MiB");
  const Measurement measured = measure(options);
  EXPECT_EQ(measured.outcome, RunOutcome::kOutOfMemory);
  ASSERT_TRUE(measured.memory);
  EXPECT_EQ(measured.memory->device, "/device:GPU:1");
  const auto report = explain_failure(options, measured);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->reproduced);
  ASSERT_NE(report->smallest(), nullptr);
  EXPECT_TRUE(report->smallest()->what.starts_with("limit of /device:GPU:1 +")) << report->smallest()->what;
  EXPECT_EQ(measure(with_change(options, *report->smallest())).outcome, RunOutcome::kOk);
}

TEST(PlacedWorkloads, AFailureOfALibraryNamesItsDevice) {
  WorkloadOptions options = two_layers_apart("sim:four-2080ti", "");
  options.runtime.others_by_gpu = "1:10780MiB";
  const Measurement measured = measure(options);
  EXPECT_EQ(measured.outcome, RunOutcome::kLibraryFailure);
  EXPECT_NE(measured.error.find("] on /device:GPU:1; strategy"), std::string::npos) << measured.error;
}

struct Spread {
  const char* net;
  const char* place;
  const char* virtual_devices;
  size_t devices;  // devices of all replicas
};

TEST(PlacedWorkloads, ReplicasOfThemHaveTheBitsOfWholeOnesAndTakeOfEachDeviceWhatIsPredicted) {
  for (const Spread& spread :
       {Spread{"mlp", "mlp/dense2=/GPU:1", "", 4},
        {"residual", "residual/stage2_block1_conv1=/GPU:1,residual/logits=/GPU:1", "", 4},
        {"attention", "attention=/GPU:1", "", 4},
        {"mlp", "mlp/dense1=/GPU:1,mlp/dense2=/GPU:2", "0:1GiB,1GiB/1:1GiB,1GiB,1GiB", 6}}) {
    for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kParallel}) {
      for (const bool sharded : {false, true}) {
        WorkloadOptions options = two_layers_apart("sim:four-2080ti", spread.virtual_devices);
        options.net = spread.net;
        options.step.steps = 3;
        options.replicas.replicas = 2;
        options.replicas.shard_optimizer = sharded;
        options.runtime.strategy = "caching";
        options.runtime.plan = plan;
        options.runtime.place.clear();
        const Measurement whole = measure(options);
        options.runtime.place = spread.place;
        const Measurement measured = measure(options);
        ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
        EXPECT_EQ(measured.weights_checksum, whole.weights_checksum) << spread.net << " " << to_string(plan);
        const Prediction predicted = predict_placed(options);
        ASSERT_EQ(measured.devices.size(), spread.devices);
        ASSERT_EQ(predicted.devices.size(), spread.devices);
        for (size_t i = 0; i < spread.devices; ++i) {
          const DeviceResult& device = measured.devices[i];
          const PlayedDevice& of_device = predicted.devices[i];
          EXPECT_EQ(parse_device_name(of_device.name).short_text(), device.device);
          EXPECT_EQ(device.peak_allocated_bytes, of_device.statistics.allocated.peak) << spread.net;
          EXPECT_EQ(device.peak_reserved_bytes, of_device.statistics.reserved.peak) << spread.net;
          EXPECT_EQ(device.peak_process_bytes, of_device.process_bytes) << spread.net;
        }
      }
    }
  }
}

TEST(PlacedWorkloads, ReplicasOfThemThatFindNoRoomAreExplainedByTheirDevice) {
  WorkloadOptions options = two_layers_apart("sim", "0:64MiB,64MiB,64MiB,4MiB");
  options.replicas.replicas = 2;
  const Measurement measured = measure(options);
  EXPECT_EQ(measured.outcome, RunOutcome::kOutOfMemory);
  EXPECT_TRUE(measured.error.starts_with("replica 1 on /GPU:2, /GPU:3: out of memory")) << measured.error;
  ASSERT_TRUE(measured.memory);
  EXPECT_EQ(measured.memory->device, "/device:GPU:3");
  const auto report = explain_failure(options, measured);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->reproduced);
  EXPECT_TRUE(measured.error.starts_with(report->message)) << report->message;
  ASSERT_NE(report->smallest(), nullptr);
  EXPECT_TRUE(report->smallest()->what.starts_with("limit of /device:GPU:3 +")) << report->smallest()->what;
  EXPECT_EQ(measure(with_change(options, *report->smallest())).outcome, RunOutcome::kOk);
}

}  // namespace
}  // namespace headroom
