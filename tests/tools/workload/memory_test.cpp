// --memory: nets that are planned for a budget of memory, run on simulated GPUs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "answers/predict.h"
#include "answers/solve.h"
#include "base/bytes.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "tools/workload/explain_failure.h"
#include "tools/workload/measure.h"

namespace headroom {
namespace {

WorkloadOptions packed(const std::string& net) {
  WorkloadOptions options;
  options.net = net;
  options.step.batch = net == kMnist ? 64 : 2;
  options.step.steps = 2;
  options.runtime.plan = PlanMode::kPacked;
  return options;
}

Solver solver_of(const WorkloadOptions& options) {
  return {make_programs(options).front(), setup_of(options.runtime)};
}

class MemoryOfEveryNet : public testing::TestWithParam<std::string> {};

TEST_P(MemoryOfEveryNet, EveryBudgetFromTheLeastOnIsKeptAtTheFirstTry) {
  WorkloadOptions options = packed(GetParam());
  const Solver solver = solver_of(options);
  const int64_t least = solver.solve_least().least_memory_bytes;
  ASSERT_GT(least, 0);
  const int64_t most = std::max(least, solver.bytes_without());
  for (const int percent : {0, 50}) {
    options.runtime.memory_bytes = least + (most - least) * percent / 100;
    const Measurement measured = measure(options);
    ASSERT_EQ(measured.outcome, RunOutcome::kOk) << percent << " " << measured.error;
    EXPECT_LE(measured.peak_process_bytes, *options.runtime.memory_bytes) << percent;
    EXPECT_EQ(measured.planned_process_bytes, measured.peak_process_bytes) << percent;
    EXPECT_EQ(headroom::predict(trace_of(options), setup_to_fit(options.runtime)).total_bytes,
              measured.peak_process_bytes)
        << percent;
    if (GetParam() == kMnist) break;  // its digits take long to draw
  }
  options.runtime.memory_bytes = least - 4 * kMiB;
  try {
    measure(options);
    ADD_FAILURE() << "less than the least was enough";
  } catch (const MemoryTooSmall& error) {
    EXPECT_EQ(error.least_bytes(), least);
    EXPECT_NE(std::string(error.what()).find("--memory " + exact_size(least)), std::string::npos);
    EXPECT_EQ(exit_code(error), kExitOutOfMemory);
  }
}

TEST_P(MemoryOfEveryNet, LessMemoryIsNeverCheaperAndABudgetCostsTheSameInAnyCompany) {
  WorkloadOptions options = packed(GetParam());
  options.step.batch *= 4;
  for (const SplitBatch allowed : {SplitBatch::kNever, SplitBatch::kCheaper}) {
    options.runtime.split_batch = allowed;
    const Solver solver = solver_of(options);
    const int64_t least = solver.solve_least().least_memory_bytes;
    ASSERT_GT(least, 0);
    const int64_t most = std::max(least, solver.bytes_without());
    double before = std::numeric_limits<double>::max();
    for (const int percent : {0, 30, 60, 100}) {
      const int64_t memory = least + (most - least) * percent / 100;
      const MemorySolution solution = solver.solve(memory);
      ASSERT_TRUE(solution.fits) << percent;
      EXPECT_LE(solution.us, before * (1 + 1e-12)) << percent;
      before = solution.us;
      if (percent == 60) {
        EXPECT_EQ(solver_of(options).solve(memory).us, solution.us);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, MemoryOfEveryNet, testing::ValuesIn(net_names()),
                         [](const auto& row) { return row.param; });

TEST(Memory, TheConvNetKeepsItsBitsOnEveryDevice) {
  const Dataset training = draw_digits(256, 1), test = draw_digits(64, 1, 256);
  for (const char* device : {"cpu", "sim"}) {
    RuntimeOptions options{.device = device, .plan = PlanMode::kPacked};
    const auto run = [&] {
      TrainSettings settings;
      settings.batch = 32;
      settings.epochs = 1;
      settings.plan = options.plan;
      Runtime runtime(options);
      return train(settings, training, test, runtime);
    };
    const TrainResult free = run();
    ASSERT_EQ(free.outcome, RunOutcome::kOk) << free.error;
    options.split_batch = SplitBatch::kNever;
    options.memory_bytes = 1;
    const TrainResult refused = run();
    EXPECT_EQ(refused.outcome, RunOutcome::kOutOfMemory);
    const size_t at = refused.error.find("--memory ");
    ASSERT_NE(at, std::string::npos) << refused.error;
    options.memory_bytes = parse_bytes(refused.error.substr(at + 9), "the least");
    const TrainResult least = run();
    ASSERT_EQ(least.outcome, RunOutcome::kOk) << least.error;
    EXPECT_LE(least.peak_process_bytes, *options.memory_bytes) << device;
    EXPECT_EQ(least.weights_checksum, free.weights_checksum) << device;
  }
}

TEST(Memory, ABudgetBelowThatOfTheWholeBatchSplitsIt) {
  WorkloadOptions options = packed("residual");
  options.step.batch = 8;
  options.runtime.split_batch = SplitBatch::kNever;
  const int64_t whole = solver_of(options).solve_least().least_memory_bytes;
  options.runtime.split_batch = SplitBatch::kNeeded;
  const Solver solver = solver_of(options);
  EXPECT_EQ(amount_of(solver.solve(whole), kSplitBatchLever), 0) << "what keeps all bits comes first";
  ASSERT_LT(solver.solve_least().least_memory_bytes, whole);
  const MemorySolution split = solver.solve(whole - kMiB);
  EXPECT_TRUE(split.fits);
  EXPECT_GT(amount_of(split, kSplitBatchLever), 1);
  EXPECT_NE(describe_bits(split).find("each batch normalization"), std::string::npos);
  options.runtime.memory_bytes = whole - kMiB;
  const Measurement measured = measure(options);
  ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
  EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes);
  EXPECT_LE(measured.peak_process_bytes, *options.runtime.memory_bytes);
}

TEST(Memory, CompressedNormsKeepABudgetForLessAndTakeWhatIsPlanned) {
  WorkloadOptions options = packed("residual");
  options.step.batch = 64;
  options.runtime.split_batch = SplitBatch::kNever;
  const Solver solver = solver_of(options);
  const int64_t least = solver.solve_least().least_memory_bytes, most = solver.bytes_without();
  const int64_t memory = least + (most - least) / 4;
  const MemorySolution exact = solver.solve(memory);
  const MemorySolution compressed = solver.solve(memory, SplitBatch::kNever, true);
  ASSERT_TRUE(exact.fits && compressed.fits);
  EXPECT_EQ(amount_of(compressed, kCompressNormsLever), 1);
  EXPECT_FALSE(keeps_bits(compressed));
  EXPECT_EQ(compressed.levers.front().name, kCompressNormsLever);
  EXPECT_LT(compressed.us, exact.us);
  EXPECT_EQ(amount_of(solver.solve(most, SplitBatch::kNever, true), kCompressNormsLever), 0)
      << "bits stay where nothing is short";
  options.runtime.memory_bytes = memory;
  options.runtime.compress_norms = true;
  const Measurement measured = measure(options);
  ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
  EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes);
  EXPECT_LE(measured.peak_process_bytes, memory);
}

TEST(Memory, CompressedNormsGoWithPartsOfTheBatch) {
  WorkloadOptions options = packed("residual");
  options.step.batch = 8;
  const Solver solver = solver_of(options);
  const int64_t least_of_whole = solver.solve(0, SplitBatch::kNever, true).least_memory_bytes;
  ASSERT_GT(least_of_whole, 0);
  const int64_t memory = least_of_whole - kMiB;
  const MemorySolution solution = solver.solve(memory, SplitBatch::kNeeded, true),
                       split = solver.solve(memory, SplitBatch::kNeeded);
  EXPECT_TRUE(solution.fits);
  EXPECT_GT(amount_of(solution, kSplitBatchLever), 1);
  EXPECT_TRUE(!split.fits || solution.us <= split.us) << "one lever more costs no more";
}

WorkloadOptions on_small_card(const std::string& net, int64_t batch) {
  WorkloadOptions options = packed(net);
  options.step.batch = batch;
  options.runtime.device = "rtx-2060";
  options.runtime.strategy = "direct";
  options.runtime.split_batch = SplitBatch::kNever;
  options.runtime.host_memory_bytes = 16 * kGiB;
  return options;
}

TEST(Memory, HostMemoryKeepsABudgetThatComputingAgainCannotOrForLess) {
  WorkloadOptions options = on_small_card("unet", 64);
  const Solver with_host = solver_of(options);
  options.runtime.host_memory_bytes = 0;
  const Solver without = solver_of(options);
  const int64_t least = without.solve_least().least_memory_bytes;
  EXPECT_LT(with_host.solve_least().least_memory_bytes, least);
  const MemorySolution dear = without.solve(least), cheap = with_host.solve(least);
  EXPECT_TRUE(dear.fits);
  EXPECT_EQ(dear.host_bytes, 0);
  EXPECT_TRUE(cheap.fits);
  EXPECT_GT(cheap.host_bytes, 0);
  EXPECT_LT(cheap.us, dear.us);
}

TEST(Memory, HostMemoryStaysWithinItsLimitAndEveryLimitKeepsTheBitsAndThePeak) {
  WorkloadOptions options = on_small_card("attention", 8);
  const Measurement free = measure(options);
  ASSERT_EQ(free.outcome, RunOutcome::kOk) << free.error;
  const int64_t most = solver_of(options).solve_least().host_bytes;
  ASSERT_GT(most, 0);
  for (const int64_t limit : {int64_t{0}, most / 2, most}) {
    options.runtime.memory_bytes.reset();
    options.runtime.host_memory_bytes = limit;
    const MemorySolution least = solver_of(options).solve_least();
    EXPECT_LE(least.host_bytes, limit);
    options.runtime.memory_bytes = least.least_memory_bytes;
    const Measurement measured = measure(options);
    ASSERT_EQ(measured.outcome, RunOutcome::kOk) << limit << " " << measured.error;
    EXPECT_LE(measured.host_bytes, limit);
    EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes) << limit;
    EXPECT_EQ(headroom::predict(trace_of(options), setup_to_fit(options.runtime)).total_bytes,
              measured.peak_process_bytes)
        << limit;
    EXPECT_EQ(measured.weights_checksum, free.weights_checksum) << limit;
  }
}

// Most of its memory is weights and the two states of each.
WorkloadOptions heavy_in_state() {
  WorkloadOptions options = on_small_card("mlp", 16);
  options.width = 2;
  return options;
}

TEST(Memory, StatesOfTheOptimizerGoToTheHostWhereTheBudgetNeedsThem) {
  WorkloadOptions options = heavy_in_state();
  const Solver with_host = solver_of(options);
  EXPECT_TRUE(with_host.solve(with_host.bytes_without()).levers.empty()) << "nothing needs to go";
  options.runtime.host_memory_bytes = 0;
  const Solver without = solver_of(options);
  const int64_t least = without.solve_least().least_memory_bytes;
  EXPECT_TRUE(without.solve_least().levers.empty());
  const MemorySolution best = with_host.solve_least();
  EXPECT_LT(best.least_memory_bytes, least);
  EXPECT_GT(amount_of(best, kHostStateLever), 0);
  EXPECT_TRUE(keeps_bits(best));
  ASSERT_FALSE(best.levers.empty());
  EXPECT_EQ(best.levers.front().name, kHostStateLever);
  EXPECT_GT(best.levers.front().saved_bytes, 0);
  EXPECT_GT(best.levers.front().added_us, 0);
}

TEST(Memory, StatesOnTheHostKeepTheBitsThePredictedPeakAndTheLimitOfTheHost) {
  WorkloadOptions options = heavy_in_state();
  for (const char* optimizer : {"momentum", "adam"}) {
    options.step.optimizer = optimizer;
    options.runtime.memory_bytes.reset();
    options.runtime.host_memory_bytes = 16 * kGiB;
    const Measurement free = measure(options);
    ASSERT_EQ(free.outcome, RunOutcome::kOk) << free.error;
    const int64_t most = solver_of(options).solve_least().host_bytes;
    for (const int64_t limit : {most / 2, most}) {
      options.runtime.memory_bytes.reset();
      options.runtime.host_memory_bytes = limit;
      const MemorySolution least = solver_of(options).solve_least();
      EXPECT_GT(amount_of(least, kHostStateLever), 0);
      EXPECT_LE(least.host_bytes, limit);
      options.runtime.memory_bytes = least.least_memory_bytes;
      const Measurement measured = measure(options);
      ASSERT_EQ(measured.outcome, RunOutcome::kOk) << optimizer << measured.error;
      EXPECT_EQ(measured.host_bytes, least.host_bytes);
      EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes) << optimizer;
      EXPECT_EQ(headroom::predict(trace_of(options), setup_to_fit(options.runtime)).total_bytes,
                measured.peak_process_bytes)
          << optimizer;
      EXPECT_EQ(measured.weights_checksum, free.weights_checksum) << optimizer;
    }
  }
}

TEST(Memory, LessMemoryIsNeverCheaperWithStatesOnTheHost) {
  const WorkloadOptions options = heavy_in_state();
  const Solver solver = solver_of(options);
  const int64_t least = solver.solve_least().least_memory_bytes, most = solver.bytes_without();
  double before = std::numeric_limits<double>::max();
  for (const int percent : {0, 30, 60, 100}) {
    const MemorySolution solution = solver.solve(least + (most - least) * percent / 100);
    ASSERT_TRUE(solution.fits) << percent;
    EXPECT_LE(solution.us, before * (1 + 1e-12)) << percent;
    before = solution.us;
  }
}

TEST(Memory, ReplicasKeepTheirStatesOnTheHost) {
  WorkloadOptions options = heavy_in_state();
  options.runtime.device = "sim:four-2080ti";
  options.replicas.replicas = 2;
  for (const bool sharded : {false, true}) {
    options.replicas.shard_optimizer = sharded;
    options.runtime.memory_bytes.reset();
    const Measurement free = measure(options);
    ASSERT_EQ(free.outcome, RunOutcome::kOk) << free.error;
    options.runtime.memory_bytes = 1;
    int64_t least = 0;
    for (const Program& program : make_programs(options)) {
      EXPECT_GT(amount_of(*program.memory, kHostStateLever), 0);
      least = std::max(least, program.memory->least_memory_bytes);
    }
    options.runtime.memory_bytes = least;
    const Measurement measured = measure(options);
    ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
    EXPECT_EQ(measured.weights_checksum, free.weights_checksum) << sharded;
    EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes) << sharded;
  }
}

TEST(Memory, PartsOfTheBatchKeepTheirStatesOnTheHost) {
  WorkloadOptions split = on_small_card("mlp", 2048);
  split.runtime.split_batch = SplitBatch::kNeeded;
  const MemorySolution least = solver_of(split).solve_least();
  EXPECT_GT(amount_of(least, kSplitBatchLever), 1);
  EXPECT_GT(amount_of(least, kHostStateLever), 0);
  split.runtime.memory_bytes = least.least_memory_bytes;
  const Measurement measured = measure(split);
  ASSERT_EQ(measured.outcome, RunOutcome::kOk) << measured.error;
  EXPECT_EQ(measured.peak_process_bytes, measured.planned_process_bytes);
}

TEST(Memory, OnlyAGpuWhosePlanIsOneArenaUsesTheHost) {
  RuntimeOptions options{.device = "rtx-2060", .plan = PlanMode::kPacked};
  EXPECT_FALSE(host_link_of(setup_of(options)).exists()) << "values leave the device only where asked";
  options.host_memory_bytes = 16 * kGiB;
  const HostLink link = host_link_of(setup_of(options));
  EXPECT_EQ(link.bytes_per_us, 12e3);
  EXPECT_EQ(link.max_bytes, 16 * kGiB);
  EXPECT_EQ(host_link_of(setup_of(options), 4).max_bytes, link.max_bytes / 4) << "replicas share the host";
  for (const PlanMode mode : {PlanMode::kDynamic, PlanMode::kParallel}) {
    options.plan = mode;
    EXPECT_FALSE(host_link_of(setup_of(options)).exists()) << to_string(mode);
  }
  options = {.device = "cpu", .host_memory_bytes = 16 * kGiB, .plan = PlanMode::kPacked};
  EXPECT_FALSE(host_link_of(setup_of(options)).exists());
}

TEST(Memory, AFailureThatNoStrategyHelpsNamesABudgetThatKeepsTheBatch) {
  WorkloadOptions options = packed("residual");
  options.step.batch = 1500;
  const Measurement failed = measure(options);
  ASSERT_EQ(failed.outcome, RunOutcome::kOutOfMemory) << failed.error;
  const std::optional<OutOfMemoryReport> report = explain_failure(options, failed);
  ASSERT_TRUE(report.has_value());
  const TriedChange* const change = report->smallest();
  ASSERT_NE(change, nullptr);
  EXPECT_EQ(change->kind, ChangeKind::kMemory) << to_text(*report);
  const WorkloadOptions changed = with_change(options, *change);
  EXPECT_EQ(changed.step.batch, options.step.batch);
  EXPECT_TRUE(fits(trace_of(changed), setup_to_fit(changed.runtime)));
}

TEST(Memory, ExcludesOtherLimitsAndSeveralDevices) {
  WorkloadOptions options = packed("mlp");
  options.runtime.memory_bytes = kGiB;
  options.runtime.limit_bytes = kGiB;
  EXPECT_THROW(options.runtime.strategy_settings(), InvalidArgument);
  options.runtime.limit_bytes.reset();
  options.runtime.virtual_devices = "0:500MiB,500MiB";
  EXPECT_THROW(make_programs(options), InvalidArgument);
}

}  // namespace
}  // namespace headroom
