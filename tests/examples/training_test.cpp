// Whole training steps of the conv net under every strategy, with and without faults.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/errors.h"
#include "device/faulty/faulty_device.h"
#include "device/host/simulated_gpu.h"
#include "examples/models/mnist/conv_net.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"
#include "tests/kernels/heap_counter.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

// One training step of the conv net over fixed digits.
struct Step {
  static constexpr int64_t kBatch = 2;
  Graph graph;
  Value images, labels;
  Value rate = graph.input("rate", {DType::kF32, {}});
  std::vector<Value> parameters;
  Value loss;

  explicit Step(bool fused = true, int64_t batch = kBatch) {
    images = graph.input("images", {DType::kU8, {batch, 28, 28, 1}});
    labels = graph.input("labels", {DType::kI32, {batch}});
    const ConvNet net(graph, 1);
    parameters = net.parameters();
    loss = mean(cross_entropy(net.logits(images), labels));
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    if (fused) fuse(graph);
  }
  Targets targets() const { return {{loss}, true}; }
  void feed(Session& session) const {
    const Dataset digits = draw_digits(kBatch, 5);
    std::copy(digits.images.begin(), digits.images.end(), session.input<uint8_t>(images).begin());
    for (size_t i = 0; i < kBatch; ++i) session.input<int32_t>(labels)[i] = digits.labels[i];
    session.input<float>(rate)[0] = 1e-3f;
  }
};

StrategySettings settings_of(std::string_view strategy) {
  StrategySettings settings{.name = std::string(strategy)};
  if (strategy == "hard-limit") settings.limit_bytes = 256 << 20;
  return settings;
}

// The H200 has memory for grab-all and every library.
DeviceProfile roomy() {
  return find_profile("h200");
}

class StrategyTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(
    All, StrategyTest,
    [] {
      std::vector<std::string> names;
      for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
      return testing::ValuesIn(names);
    }(),
    [](const auto& row) {
      std::string name = row.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Two steps without faults: the expected result.
uint64_t weights_after_two_steps() {
  static const uint64_t checksum = [] {
    const Step step;
    SimulatedGpu device(roomy());
    const auto allocator = make_allocator({.name = "direct"}, device);
    Variables variables(step.graph, device, *allocator);
    Session session(step.graph, step.targets(), PlanMode::kDynamic, variables);
    step.feed(session);
    session.run();
    session.run();
    return variables.checksum(step.parameters);
  }();
  return checksum;
}

TEST_P(StrategyTest, AnyDriverCallMayFailWithoutLeaksOrEffects) {
  const Step step;
  CpuHarness cpu;
  const auto kernels = std::make_shared<const Kernels>(step.graph, cpu.device, *cpu.allocator);
  for (PlanMode mode : kPlanModes) {
    const Plan plan = make_plan(step.graph, step.targets(), mode, kernels->workspace_bytes());
    int64_t failures = 0;
    bool fired = true;
    for (int64_t n = 1; fired; ++n) {
      SimulatedGpu gpu(roomy());
      FaultyDevice device(gpu);
      const auto allocator = make_allocator(settings_of(GetParam()), device);
      {
        Variables variables(step.graph, device, *allocator);
        Session session(step.graph, plan, kernels, variables);
        step.feed(session);
        const int64_t held = allocator->statistics().allocated.current;
        device.faults().arm({.failing_call = n});
        int steps = 0;
        try {
          session.run();
          ++steps;
        } catch (const OutOfMemory&) {
          ++failures;
        } catch (const LibraryError&) {
          ++failures;
        } catch (const DeviceError&) {
          ++failures;
        }
        fired = device.faults().calls() >= n;
        ASSERT_EQ(allocator->statistics().allocated.current, held) << "leak after call " << n;
        device.faults().arm({});
        for (; steps < 2; ++steps) session.run();
        ASSERT_EQ(variables.checksum(step.parameters), weights_after_two_steps()) << "after call " << n;
      }
      ASSERT_EQ(allocator->statistics().allocated.current, 0);
    }
    // At least the copies and the two libraries fail permanently.
    EXPECT_GE(failures, 4) << to_string(mode);
  }
}

TEST_P(StrategyTest, GivesTheSameBitsInEveryMode) {
  const Step step;
  for (PlanMode mode : kPlanModes) {
    SimulatedGpu device(roomy());
    const auto allocator = make_allocator(settings_of(GetParam()), device);
    Variables variables(step.graph, device, *allocator);
    Session session(step.graph, step.targets(), mode, variables);
    step.feed(session);
    session.run();
    session.run();
    EXPECT_EQ(variables.checksum(step.parameters), weights_after_two_steps());
  }
}

TEST_P(StrategyTest, ThePredictedPeakEqualsTheMeasuredOne) {
  const Dataset training = draw_digits(64, 1), test = draw_digits(20, 1, 64);
  for (PlanMode mode : kPlanModes) {
    for (bool fused : {false, true}) {
      RuntimeOptions options{.device = "sim:h200", .strategy = GetParam()};
      if (GetParam() == "hard-limit") options.limit_bytes = 256 << 20;
      Runtime runtime(options);
      TrainSettings settings;
      settings.epochs = 1;
      settings.batch = 16;
      settings.plan = mode;
      settings.fused = fused;
      const TrainResult result = train(settings, training, test, runtime);
      ASSERT_EQ(result.outcome, RunOutcome::kOk) << result.error;
      ASSERT_TRUE(result.predicted_peak_bytes.has_value());
      EXPECT_EQ(*result.predicted_peak_bytes, result.peak_allocated_bytes) << to_string(mode) << fused;
    }
  }
}

TEST(PackedPlan, CallsNeitherTheAllocatorNorTheSystemHeap) {
  for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
    const Step step;
    SimulatedGpu device(roomy());
    const auto allocator = make_allocator({.name = "allow-growth"}, device);
    Variables variables(step.graph, device, *allocator);
    Session session(step.graph, step.targets(), mode, variables);
    step.feed(session);
    const int64_t calls = allocator->statistics().allocations;
    session.run(40);  // records one step and several
    const test::HeapCounter heap;
    session.run();
    session.run(40);
    const int64_t taken = heap.allocations();
    EXPECT_EQ(allocator->statistics().allocations, calls);
    if (!test::HeapCounter::works()) GTEST_SKIP() << "this sanitizer hides allocations";
    EXPECT_EQ(taken, 0) << to_string(mode);
  }
}

TEST(PackedPlan, TakesAtMostOnePercentMoreThanTheLargestLiveSet) {
  for (const auto& [fused, batch] : {std::pair(false, 16), {true, 16}, {false, 64}, {true, 64}, {true, 2}}) {
    const Step step(fused, batch);
    CpuHarness cpu;
    const Kernels kernels(step.graph, cpu.device, *cpu.allocator);
    const Plan plan = make_plan(step.graph, step.targets(), PlanMode::kPacked, kernels.workspace_bytes());
    EXPECT_EQ(find_fault(step.graph, plan, kernels.workspace_bytes()), std::nullopt);
    EXPECT_LE(static_cast<double>(plan.peak_bytes), 1.01 * static_cast<double>(plan.lower_bound_bytes));
  }
}

TEST(Fusing, ChangesTheLossByRoundingOnly) {
  float losses[2];
  for (bool fused : {false, true}) {
    const Step step(fused);
    SimulatedGpu device(roomy());
    const auto allocator = make_allocator({.name = "direct"}, device);
    Variables variables(step.graph, device, *allocator);
    Session session(step.graph, step.targets(), PlanMode::kDynamic, variables);
    step.feed(session);
    for (int i = 0; i < 3; ++i) session.run();
    losses[fused] = session.output<float>(step.loss)[0];
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4f * losses[0]);
}

TEST(Training, LearnsDrawnDigitsWithTheSameWeightsEveryTime) {
  const Dataset training = draw_digits(3000, 1), test = draw_digits(500, 1, 3000);
  TrainSettings settings;
  settings.epochs = 2;
  settings.batch = 32;
  std::string checksum;
  for (int run = 0; run < 2; ++run) {
    Runtime runtime({.device = "cpu"});
    const TrainResult result = train(settings, training, test, runtime);
    ASSERT_EQ(result.outcome, RunOutcome::kOk);
    EXPECT_GT(result.test_accuracy, 0.9);
    if (run == 1) {
      EXPECT_EQ(result.weights_checksum, checksum);
    }
    checksum = result.weights_checksum;
  }
}

TEST(Training, OnTheLaptopGrabAllFailsAndGrowthAndLimitTrain) {
  const Dataset training = draw_digits(64, 1), test = draw_digits(20, 1, 64);
  TrainSettings settings;
  settings.epochs = 1;
  const auto run = [&](const RuntimeOptions& options) {
    Runtime runtime(options);
    return train(settings, training, test, runtime);
  };
  const TrainResult all = run({.device = "sim", .strategy = "grab-all"});
  EXPECT_EQ(all.outcome, RunOutcome::kLibraryFailure);
  EXPECT_EQ(
      all.error.find("Blas xGEMM launch failed : a.shape=[1,64,576], b.shape=[1,576,64], m=64, n=64, k=576"),
      0u)
      << all.error;
  EXPECT_EQ(all.log.size(), 5u);
  const TrainResult growth = run({.device = "sim", .strategy = "allow-growth"});
  EXPECT_EQ(growth.outcome, RunOutcome::kOk);
  EXPECT_EQ(growth.peak_process_bytes - growth.peak_reserved_bytes, int64_t{431} << 20);
  const TrainResult limit = run({.device = "sim", .strategy = "hard-limit", .limit_bytes = 1 << 30});
  EXPECT_EQ(limit.outcome, RunOutcome::kOk);
  EXPECT_EQ(limit.peak_process_bytes, int64_t{1455} << 20);
  EXPECT_EQ(limit.peak_device_bytes, int64_t{1784} << 20);
  EXPECT_EQ(limit.weights_checksum, growth.weights_checksum);
}

TEST(Training, GivesTheSameWeightsForEveryDataPlaceAndPlan) {
  // Neither set is a multiple of the batch.
  const Dataset training = draw_digits(83, 1), test = draw_digits(27, 1, 83);
  TrainSettings settings;
  settings.epochs = 3;
  settings.batch = 8;
  std::optional<TrainResult> first;
  std::vector<float> first_losses;
  for (DataOn data_on : {DataOn::kHost, DataOn::kDevice}) {
    for (PlanMode mode : kPlanModes) {
      settings.data_on = data_on;
      settings.plan = mode;
      Runtime runtime({.device = "sim:h200"});
      std::vector<float> losses;
      const TrainResult result =
          train(settings, training, test, runtime, [&](const StepReport& r) { losses.push_back(r.loss); });
      ASSERT_EQ(result.outcome, RunOutcome::kOk) << result.error;
      ASSERT_EQ(losses.size(), 30u);
      if (!first) {
        first = result;
        first_losses = losses;
      }
      EXPECT_EQ(result.weights_checksum, first->weights_checksum) << to_string(mode);
      EXPECT_EQ(result.confusion, first->confusion) << to_string(mode);
      EXPECT_EQ(result.final_loss, first->final_loss) << to_string(mode);
      EXPECT_EQ(losses, first_losses) << to_string(mode);
    }
  }
}

TEST(Training, GivesTheSameBitsWithALoaderAndOnAnyNumberOfThreads) {
  const Dataset training = draw_digits(203, 1), test = draw_digits(51, 1, 203);
  TrainSettings settings;
  settings.epochs = 1;
  settings.batch = 50;
  settings.data_on = DataOn::kHost;
  std::set<std::string> weights;
  std::set<double> losses;
  for (PlanMode mode : kPlanModes) {
    for (const auto& [loader_depth, threads] : {std::pair<int64_t, int64_t>{0, 1}, {3, 1}, {4, 3}}) {
      settings.plan = mode;
      settings.loader_depth = loader_depth;
      Runtime runtime({.device = "cpu", .intra_op_threads = threads, .inter_op_threads = threads});
      const TrainResult result = train(settings, training, test, runtime);
      ASSERT_EQ(result.outcome, RunOutcome::kOk) << result.error;
      EXPECT_EQ(result.predicted_peak_bytes, result.peak_allocated_bytes)
          << to_string(mode) << " " << loader_depth;
      weights.insert(result.weights_checksum);
      losses.insert(result.final_loss);
    }
  }
  EXPECT_EQ(weights.size(), 1u);
  EXPECT_EQ(losses.size(), 1u);
}

TEST(Training, StopsAtTheFirstEvaluationThatReachesTheTarget) {
  const Dataset training = draw_digits(640, 1), test = draw_digits(100, 1, 640);
  TrainSettings settings;
  settings.batch = 16;
  settings.evaluate_every = 15;
  const auto evaluations_of = [&](TrainResult* result) {
    std::vector<std::pair<int64_t, double>> evaluations;
    Runtime runtime({.device = "cpu"});
    *result = train(settings, training, test, runtime, [&](const StepReport& r) {
      if (r.test_accuracy) evaluations.emplace_back((r.epoch - 1) * r.steps + r.step, *r.test_accuracy);
    });
    return evaluations;
  };
  TrainResult whole, stopped;
  settings.epochs = 2;
  const auto all = evaluations_of(&whole);
  ASSERT_EQ(all.size(), 6u);  // after 15, 30 and 40 steps of each epoch
  EXPECT_EQ(all[1].first, 30);
  EXPECT_EQ(all[2].first, 40);
  EXPECT_EQ(all[3].first, 55);
  EXPECT_EQ(whole.steps, 80);
  EXPECT_EQ(whole.seconds_to_target, std::nullopt);

  settings.target_accuracy = all[3].second;
  const auto until = evaluations_of(&stopped);
  ASSERT_FALSE(until.empty());
  EXPECT_GE(until.back().second, *settings.target_accuracy);
  EXPECT_LE(until.back().first, 55);
  EXPECT_EQ(stopped.steps, until.back().first);
  EXPECT_GT(stopped.seconds_to_target.value_or(0), 0);
  EXPECT_EQ(until, std::vector(all.begin(), all.begin() + static_cast<long>(until.size())));
}

TEST(Training, APowerOfTwoLossScaleChangesNoWeight) {
  const Dataset training = draw_digits(64, 1), test = draw_digits(20, 1, 64);
  for (const char* optimizer : {"sgd", "momentum", "rmsprop", "adamw"}) {
    std::vector<std::string> checksums;
    for (float scale : {1.0f, 1024.0f}) {
      TrainSettings settings;
      settings.batch = 16;
      settings.optimizer = optimizer;
      settings.loss_scale = scale;
      Runtime runtime({.device = "cpu"});
      checksums.push_back(train(settings, training, test, runtime).weights_checksum);
    }
    EXPECT_EQ(checksums[0], checksums[1]) << optimizer;
  }
}

TEST(LearningRate, FollowsTheSchedule) {
  TrainSettings settings;
  settings.learning_rate = 0.5f;
  settings.schedule = Schedule::kConstant;
  EXPECT_EQ(rate_at(settings, 77, 100), 0.5f);
  settings.schedule = Schedule::kCosine;
  EXPECT_EQ(rate_at(settings, 0, 100), 0.5f);
  EXPECT_FLOAT_EQ(rate_at(settings, 50, 100), 0.25f);
  EXPECT_LT(rate_at(settings, 99, 100), 0.001f);
  settings.schedule = Schedule::kOneCycle;
  EXPECT_FLOAT_EQ(rate_at(settings, 0, 100), 0.02f);
  EXPECT_FLOAT_EQ(rate_at(settings, 25, 100), 0.5f);
  EXPECT_LT(rate_at(settings, 24, 100), 0.5f);
  EXPECT_LT(rate_at(settings, 26, 100), 0.5f);
  EXPECT_LT(rate_at(settings, 99, 100), 0.001f);
}

TEST(Training, RefusesBadSettings) {
  const Dataset training = draw_digits(64, 1), test = draw_digits(20, 1, 64);
  for (const auto& change : std::vector<std::function<void(TrainSettings&)>>{
           [](TrainSettings& s) { s.batch = 0; }, [](TrainSettings& s) { s.batch = 65; },
           [](TrainSettings& s) { s.epochs = 0; }, [](TrainSettings& s) { s.learning_rate = -1; },
           [](TrainSettings& s) { s.loss_scale = 0; }, [](TrainSettings& s) { s.optimizer = "adamm"; },
           [](TrainSettings& s) { s.load_weights = "/nowhere"; }}) {
    TrainSettings settings;
    settings.batch = 16;
    change(settings);
    Runtime runtime({.device = "cpu"});
    EXPECT_THROW(train(settings, training, test, runtime), InvalidArgument);
  }
}

}  // namespace
}  // namespace headroom
