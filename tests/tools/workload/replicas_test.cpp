// Nets of the zoo in replicas, and the prediction for one.

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "answers/predict.h"
#include "base/errors.h"
#include "tools/workload/explain_failure.h"
#include "tools/workload/fitting.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

WorkloadOptions four_replicas(const char* net) {
  WorkloadOptions options;
  options.net = net;
  options.step.batch = 4;
  options.step.steps = 2;
  options.replicas.replicas = 4;
  options.runtime.device = "sim:four-2080ti";
  options.runtime.strategy = "direct";  // counts what was asked for
  options.runtime.plan = PlanMode::kParallel;
  return options;
}

Prediction predict_replicas(const WorkloadOptions& options) {
  return headroom::predict(trace_of(options), setup_to_fit(options.runtime));
}

int64_t optimizer_state(const WorkloadOptions& options) {
  const LiveSet live = largest_live_set(trace_of(options).front());
  return live.by_category[static_cast<size_t>(MemoryCategory::kOptimizerState)];
}

TEST(ReplicaWorkloads, TakeWhatIsPredictedOfEachAndHaveEqualWeights) {
  for (const char* net : {"mlp", "residual", "attention"}) {
    const WorkloadOptions options = four_replicas(net);
    const Measurement measured = measure(options);
    ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
    ASSERT_EQ(measured.replicas.size(), 4u);
    const Prediction predicted = predict_replicas(options);
    for (size_t rank = 0; rank < 4; ++rank) {
      const ReplicaResult& replica = measured.replicas[rank];
      EXPECT_EQ(replica.weights_checksum, measured.replicas[0].weights_checksum) << net;
      EXPECT_EQ(replica.peak_allocated_bytes, predicted.devices[rank].statistics.allocated.peak) << net;
      EXPECT_EQ(replica.peak_process_bytes, predicted.devices[rank].process_bytes) << net;
    }
  }
}

TEST(ReplicaWorkloads, ShardingTheOptimizerSavesWhatIsPredicted) {
  WorkloadOptions options = four_replicas("mlp");
  const Measurement whole = measure(options);
  const Prediction whole_predicted = predict_replicas(options);
  const int64_t whole_state = optimizer_state(options);
  options.replicas.shard_optimizer = true;
  options.replicas.bucket_bytes = 64 << 10;
  const Measurement sharded = measure(options);
  ASSERT_EQ(sharded.outcome, RunOutcome::kOk) << sharded.error;
  EXPECT_EQ(sharded.replicas[0].weights_checksum, whole.replicas[0].weights_checksum);
  for (const ReplicaResult& replica : sharded.replicas)
    EXPECT_LE(replica.optimizer_bytes,
              whole.replicas[0].optimizer_bytes / 4 + *options.replicas.bucket_bytes);
  const Prediction predicted = predict_replicas(options);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(sharded.replicas[rank].peak_allocated_bytes, predicted.devices[rank].statistics.allocated.peak);
  EXPECT_LE(optimizer_state(options), whole_state / 4 + *options.replicas.bucket_bytes);
  EXPECT_LT(predicted.allocated_bytes, whole_predicted.allocated_bytes);
}

TEST(ReplicaWorkloads, OneThatFindsNoRoomEndsAllAndIsExplained) {
  WorkloadOptions options = four_replicas("mlp");
  options.runtime.device = "sim";
  options.runtime.strategy = "allow-growth";
  options.runtime.virtual_devices = "0:200MiB,4MiB";
  options.replicas.replicas = 2;
  const Measurement measured = measure(options);
  EXPECT_EQ(measured.outcome, RunOutcome::kOutOfMemory);
  EXPECT_EQ(measured.failed_rank, 1);
  EXPECT_TRUE(measured.error.starts_with("replica 1 on /GPU:1: out of memory")) << measured.error;
  const auto report = explain_failure(options, measured);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->reproduced);
  EXPECT_TRUE(measured.error.starts_with(report->message)) << report->message;
  ASSERT_NE(report->smallest(), nullptr);
  EXPECT_TRUE(report->smallest()->what.starts_with("limit of /device:GPU:1 +")) << report->smallest()->what;
  EXPECT_EQ(measure(with_change(options, *report->smallest())).outcome, RunOutcome::kOk);
}

TEST(ReplicaWorkloads, ThatShareAGpuTakeAtMostWhatIsPredictedWhetherTheirPeaksMeetOrNot) {
  WorkloadOptions options = four_replicas("lenet");
  options.runtime.device = "sim:laptop-2gb";
  options.runtime.virtual_devices = "0:40MiB,40MiB";
  options.runtime.plan = PlanMode::kDynamic;
  options.replicas.replicas = 2;
  options.step.batch = 256;
  const Prediction predicted = predict_replicas(options);
  EXPECT_TRUE(predicted.total_is_most);
  int64_t together = predicted.context_bytes + predicted.library_bytes;
  for (const PlayedDevice& device : predicted.devices) together += device.statistics.reserved.peak;
  EXPECT_GE(predicted.total_bytes, together);
  const RunSetup setup = setup_to_fit(options.runtime);
  const std::optional<int64_t> least = least_total_bytes(trace_of(options), setup);
  ASSERT_TRUE(least.has_value());
  options.runtime.device_memory_bytes = least;
  for (int i = 0; i < 3; ++i) {
    const Measurement measured = measure(options);
    ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
    EXPECT_LE(measured.peak_process_bytes, predicted.total_bytes);
    EXPECT_EQ(measured.peak_reserved_bytes, predicted.reserved_bytes);
  }
  options.runtime.device_memory_bytes = *least - setup.device.granularity_bytes;
  const Prediction smaller = predict_replicas(options);
  EXPECT_FALSE(smaller.fits);
  EXPECT_NE(smaller.reason.find("may reach their peaks together"), std::string::npos) << smaller.reason;
}

TEST(ReplicaWorkloads, FitTheLargestBatchThatAllCanShare) {
  WorkloadOptions options = four_replicas("mlp");
  options.runtime.device = "sim";
  options.runtime.virtual_devices = "0:16MiB,24MiB,20MiB";
  options.replicas.replicas = 3;
  options.replicas.shard_optimizer = true;
  std::vector<Measurement> runs;
  const Fit found = fit_batch(options, 0, 10000, [&](const WorkloadOptions& tried, const Traced&) {
    return runs.emplace_back(measure(tried));
  });
  EXPECT_EQ(found.batch % 3, 0);
  EXPECT_GT(found.batch, 3);
  EXPECT_TRUE(found.fits);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].outcome, RunOutcome::kOk);
  ASSERT_EQ(found.prediction.devices.size(), 3u);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(runs[0].replicas[rank].peak_allocated_bytes,
              found.prediction.devices[rank].statistics.allocated.peak);
  }
  options.step.batch = found.batch + 3;
  const Measurement more = measure(options);
  EXPECT_EQ(more.outcome, RunOutcome::kOutOfMemory);
  EXPECT_EQ(more.failed_rank, 0);
}

TEST(ReplicaWorkloads, ABatchThatCannotBeSharedIsRefused) {
  WorkloadOptions options = four_replicas("mlp");
  options.step.batch = 6;
  EXPECT_THROW(make_programs(options), InvalidArgument);
  EXPECT_THROW(measure(options), InvalidArgument);
  options.net = kMnist;
  EXPECT_THROW(make_programs(options), InvalidArgument);
}

}  // namespace
}  // namespace headroom
