// Training with several replicas in one process gives the results of one device.

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/errors.h"
#include "collective/faulty/faulty_collective.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/report.h"
#include "examples/models/mnist/trainer.h"

namespace headroom {
namespace {

constexpr int64_t kBatch = 12;

RuntimeOptions four_gpus() {
  return {.device = "sim:four-2080ti"};
}

TrainSettings settings_for(int replicas) {
  TrainSettings settings;
  settings.epochs = 2;
  settings.steps = 2;
  settings.batch = kBatch;
  settings.replicas = replicas;
  settings.plan = PlanMode::kParallel;
  settings.buckets = {1, 100000};
  return settings;
}

TrainResult run(TrainSettings settings, RuntimeOptions options) {
  static const Dataset training = draw_digits(2 * kBatch, 3), test = draw_digits(25, 4);
  options.plan = settings.plan;
  settings.placed = parse_scopes_on_devices(options.place);
  Runtime runtime(options);
  TrainResult result = train(settings, training, test, runtime);
  if (result.outcome != RunOutcome::kOk) explain_failure(settings, training, test, runtime, result);
  return result;
}

TEST(Replicas, HaveEqualWeightsAndTheLossesOfOneDeviceWithTheSameBatch) {
  const TrainResult one = run(settings_for(1), four_gpus());
  ASSERT_EQ(one.replicas.size(), 1u);
  for (const int replicas : {2, 3, 4}) {
    for (const DataOn data_on : {DataOn::kDevice, DataOn::kHost}) {
      TrainSettings settings = settings_for(replicas);
      settings.data_on = data_on;
      const TrainResult many = run(settings, four_gpus());
      ASSERT_EQ(many.outcome, RunOutcome::kOk) << many.error;
      ASSERT_EQ(many.replicas.size(), static_cast<size_t>(replicas));
      for (const ReplicaResult& replica : many.replicas) {
        EXPECT_EQ(replica.weights_checksum, many.weights_checksum);
        EXPECT_EQ(replica.predicted_peak_bytes, replica.peak_allocated_bytes);
      }
      ASSERT_EQ(many.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-4);
      EXPECT_NEAR(many.test_accuracy, one.test_accuracy, 0.05);
      int64_t tested = 0;
      for (const auto& row : many.confusion) {
        for (const int64_t count : row) tested += count;
      }
      EXPECT_EQ(tested, 25);
    }
  }
}

TEST(Replicas, OnVirtualDevicesGiveTheBitsOfSeparateGpus) {
  const TrainResult apart = run(settings_for(2), four_gpus());
  RuntimeOptions options{.device = "sim", .virtual_devices = "0:300MiB,200MiB"};
  EXPECT_EQ(run(settings_for(2), options).weights_checksum, apart.weights_checksum);
}

TEST(Replicas, WithAShardedOptimizerKeepAPartOfItsStateAndTheSameBits) {
  RuntimeOptions options = four_gpus();
  options.strategy = "direct";  // does not round up
  TrainSettings settings = settings_for(4);
  const TrainResult whole = run(settings, options);
  settings.shard_optimizer = true;
  const TrainResult sharded = run(settings, options);
  EXPECT_EQ(sharded.weights_checksum, whole.weights_checksum);
  EXPECT_EQ(sharded.losses, whole.losses);
  constexpr int64_t kBucket = 100000;
  for (const ReplicaResult& replica : sharded.replicas) {
    EXPECT_LE(replica.optimizer_bytes, whole.optimizer_bytes / 4 + kBucket);
    EXPECT_EQ(replica.predicted_peak_bytes, replica.peak_allocated_bytes);
    const int64_t saved = whole.optimizer_bytes - replica.optimizer_bytes;
    // Blocks are rounded up to 256 bytes: two states of each of ten variables.
    EXPECT_NEAR(static_cast<double>(whole.peak_allocated_bytes - replica.peak_allocated_bytes),
                static_cast<double>(saved), 2 * 10 * 256);
  }
}

RuntimeOptions spread(RuntimeOptions options, const char* place = "dense=/GPU:1") {
  options.place = place;
  options.device_policy = DevicePolicy::kSilent;
  return options;
}

TEST(Replicas, SpreadOverDevicesGiveTheBitsOfWholeOnesAndTakeWhatIsPredictedOfEach) {
  for (const PlanMode plan : {PlanMode::kDynamic, PlanMode::kPacked, PlanMode::kParallel}) {
    for (const DataOn data_on : {DataOn::kDevice, DataOn::kHost}) {
      for (const bool sharded : {false, true}) {
        TrainSettings settings = settings_for(2);
        settings.plan = plan;
        settings.data_on = data_on;
        settings.shard_optimizer = sharded;
        const TrainResult whole = run(settings, four_gpus());
        const TrainResult two = run(settings, spread(four_gpus()));
        ASSERT_EQ(two.outcome, RunOutcome::kOk) << two.error;
        EXPECT_EQ(two.weights_checksum, whole.weights_checksum) << to_string(plan);
        EXPECT_EQ(two.losses, whole.losses) << to_string(plan);
        EXPECT_EQ(two.confusion, whole.confusion) << to_string(plan);
        EXPECT_EQ(two.sums, "host");
        ASSERT_EQ(two.replicas.size(), 2u);
        EXPECT_EQ(two.replicas[0].device, "/GPU:0, /GPU:1");
        EXPECT_EQ(two.replicas[1].device, "/GPU:2, /GPU:3");
        ASSERT_EQ(two.devices.size(), 4u);
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_EQ(two.devices[i].device, "/GPU:" + std::to_string(i));
          EXPECT_EQ(two.devices[i].predicted_peak_bytes, two.devices[i].peak_allocated_bytes);
          EXPECT_GT(two.devices[i].peak_allocated_bytes, 0);
        }
      }
    }
  }
}

TEST(Replicas, SpreadOverVirtualDevicesInAnyPartsGiveTheSameBits) {
  const TrainResult whole = run(settings_for(2), four_gpus());
  for (const char* limits : {"0:100MiB,100MiB,100MiB,100MiB", "0:100MiB,100MiB,100MiB/1:100MiB",
                             "0:100MiB/1:100MiB,100MiB/2:100MiB"}) {
    RuntimeOptions options = four_gpus();
    options.virtual_devices = limits;
    const TrainResult two = run(settings_for(2), spread(options));
    ASSERT_EQ(two.outcome, RunOutcome::kOk) << two.error;
    EXPECT_EQ(two.weights_checksum, whole.weights_checksum) << limits;
  }
}

TEST(Replicas, SpreadOnesThatLackMemoryNameTheDevice) {
  RuntimeOptions options{.device = "sim", .virtual_devices = "0:300MiB,300MiB,300MiB,256KiB"};
  const TrainResult result = run(settings_for(2), spread(options));
  EXPECT_EQ(result.outcome, RunOutcome::kOutOfMemory);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_TRUE(result.error.starts_with("replica 1 on /GPU:2, /GPU:3: out of memory")) << result.error;
  ASSERT_TRUE(result.memory.has_value());
  EXPECT_EQ(result.memory->device, "/device:GPU:3");
  ASSERT_TRUE(result.report.has_value());
  EXPECT_TRUE(result.report->reproduced);
  EXPECT_TRUE(result.error.starts_with(result.report->message)) << result.report->message;
  ASSERT_NE(result.report->smallest(), nullptr);
  EXPECT_TRUE(result.report->smallest()->what.starts_with("limit of /device:GPU:3 +"))
      << result.report->smallest()->what;

  // A handle of cuBLAS that has no room.
  options = four_gpus();
  options.others_by_gpu = "3:10780MiB";
  const TrainResult library = run(settings_for(2), spread(options));
  EXPECT_EQ(library.outcome, RunOutcome::kLibraryFailure);
  EXPECT_TRUE(library.error.starts_with("replica 1 on /GPU:2, /GPU:3: ")) << library.error;
  EXPECT_NE(library.error.find("] on /device:GPU:3; strategy"), std::string::npos) << library.error;
}

TEST(Replicas, OneOutOfMemoryEndsAllAndIsNamed) {
  for (const char* limits : {"0:300MiB,3MiB", "0:3MiB,300MiB"}) {
    RuntimeOptions options{.device = "sim", .virtual_devices = limits};
    const int failing = limits[3] == 'M' ? 0 : 1;
    TrainSettings settings = settings_for(2);
    settings.batch = 24;
    const TrainResult result = run(settings, options);
    EXPECT_EQ(result.outcome, RunOutcome::kOutOfMemory);
    EXPECT_EQ(result.failed_rank, failing);
    EXPECT_TRUE(result.error.starts_with("replica " + std::to_string(failing) +
                                         " on /GPU:" + std::to_string(failing)))
        << result.error;
    ASSERT_TRUE(result.report.has_value());
    EXPECT_TRUE(result.report->reproduced);
    EXPECT_TRUE(result.error.starts_with(result.report->message)) << result.report->message;
    for (const TriedChange& change : result.report->changes) EXPECT_EQ(change.setup.options.device, "sim");
    EXPECT_EQ(result.replicas.size(), 2u);
  }
}

TEST(Replicas, AFullGpuEndsAllAndIsNamed) {
  RuntimeOptions options = four_gpus();
  options.others_by_gpu = "2:10900MiB";
  const TrainResult result = run(settings_for(4), options);
  EXPECT_EQ(result.outcome, RunOutcome::kLibraryFailure);
  EXPECT_EQ(result.failed_rank, 2);
}

TEST(Replicas, AnExceptionOfOneEndsAllAndIsThrown) {
  TrainSettings settings = settings_for(3);
  settings.load_weights = "/nowhere";
  EXPECT_THROW(run(settings, four_gpus()), InvalidArgument);
}

// The errors of both ranks when rank 1 dies in its `failing_call`-th call; empty if nothing failed.
std::array<std::string, 2> errors_of_two_ranks(int64_t failing_call) {
  static const Dataset training = draw_digits(4, 3), test = draw_digits(4, 4);
  TrainSettings settings = settings_for(2);
  settings.epochs = 1;
  settings.batch = 2;
  settings.shard_optimizer = true;
  std::array<std::string, 2> errors;
  std::vector<std::thread> ranks;
  for (auto& end : make_in_process_group(2)) {
    ranks.emplace_back([&, end = std::move(end)]() mutable {
      std::string& error = errors[static_cast<size_t>(end->rank())];
      Runtime runtime({.device = "sim:four-2080ti:" + std::to_string(end->rank())});
      FaultyCollective group(std::move(end));
      if (group.rank() == 1) group.faults().arm({.failing_call = failing_call});
      try {
        error = train_rank(settings, training, test, runtime, "host", group).error;
      } catch (const CollectiveError& failure) {  // after training, when ranks exchange results
        error = failure.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST(Replicas, ARankThatDiesInAnyCallEndsAllAndIsNamed) {
  int64_t call = 1;
  for (;; ++call) {
    const std::array<std::string, 2> errors = errors_of_two_ranks(call);
    if (errors[1].empty()) break;
    EXPECT_NE(errors[1].find("injected fault"), std::string::npos) << errors[1];
    EXPECT_NE(errors[0].find("rank 1 has died"), std::string::npos) << "call " << call << ": " << errors[0];
  }
  EXPECT_GT(call, 20) << "weights, steps, the test and the results are all calls";
}

TEST(Replicas, AdviceAfterACollectiveFailureIsNotAboutMemory) {
  const Runtime runtime(four_gpus());
  TrainResult late, nccl, differing;
  late.outcome = differing.outcome = RunOutcome::kReplicaFailure;
  late.replicas.resize(2);
  EXPECT_NE(advice(late, runtime).find("--collective-timeout"), std::string::npos);
  nccl.outcome = RunOutcome::kLibraryFailure;
  nccl.call = "ncclCommInitRank";
  EXPECT_NE(advice(nccl, runtime).find("NCCL_DEBUG"), std::string::npos);
  differing.replicas.resize(2);
  for (ReplicaResult& replica : differing.replicas) replica.weights_checksum = "0123456789abcdef";
  EXPECT_NE(advice(differing, runtime).find("--visible-devices"), std::string::npos);
}

TEST(Replicas, RefuseABatchThatTheyCannotShareEquallyAndDevicesThatAreNotThere) {
  const auto refused = [](int replicas, int64_t batch, const RuntimeOptions& options) {
    TrainSettings settings = settings_for(replicas);
    settings.batch = batch;
    try {
      run(settings, options);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(4, 10, four_gpus()), "batch 10: not a multiple of 4 replicas; try 8");
  EXPECT_EQ(refused(4, 2, four_gpus()), "batch 2: not a multiple of 4 replicas; try 4");
  EXPECT_NE(refused(0, 12, four_gpus()), "");
  EXPECT_NE(refused(5, 20, four_gpus()).find("sim:four-2080ti has 4"), std::string::npos);
  EXPECT_EQ(refused(2, 12, {.device = "cpu"}), "2 replicas need as many GPUs, and the device is 'cpu'");
  EXPECT_NE(refused(2, 12, {.device = "sim:four-2080ti:1"}).find("/GPU:1"), std::string::npos);
  EXPECT_EQ(refused(3, 12, spread(four_gpus())),
            "3 replicas on 2 devices each need 6 logical GPUs, device sim:four-2080ti has 4; virtual-devices "
            "cuts one into several");
  EXPECT_NE(refused(2, 12, spread(four_gpus(), "dense=/GPU:2")).find("3 devices each need 6"),
            std::string::npos);
  EXPECT_NE(refused(2, 12, spread(four_gpus(), "dense=/CPU:0")).find("one CPU for all"), std::string::npos);
}

}  // namespace
}  // namespace headroom
