// A resumed training ends with the same bits as one that was not interrupted.

#include "examples/models/mnist/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <utility>

#include "answers/memory_solution.h"
#include "base/errors.h"
#include "examples/models/mnist/digits.h"
#include "examples/models/mnist/trainer.h"
#include "examples/models/mnist/training_graph.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

constexpr int kEpochs = 2;
constexpr int64_t kStepsOfEpoch = 3, kImages = 8;

struct Stop {};

TrainSettings short_training(int replicas, bool sharded) {
  TrainSettings settings;
  settings.epochs = kEpochs;
  settings.batch = kImages;
  settings.replicas = replicas;
  settings.shard_optimizer = sharded;
  return settings;
}

// Trains to the end, or until an exception after `stop_after` steps.
TrainResult train_until(const TrainSettings& settings, int64_t stop_after = INT64_MAX) {
  static const Dataset training = draw_digits(kStepsOfEpoch * kImages + 1, 3), test = draw_digits(10, 4);
  Runtime runtime({.device = "sim:four-2080ti", .plan = settings.plan});
  return train(settings, training, test, runtime, [left = stop_after](const StepReport&) mutable {
    if (--left == 0) throw Stop();
  });
}

void stop_after(int64_t steps, TrainSettings settings, const std::string& path) {
  settings.save = path;
  settings.checkpoint_every = 1;
  EXPECT_THROW(train_until(settings, steps), Stop);
}

TrainResult resume(TrainSettings settings, const std::string& path) {
  settings.resume = path;
  return train_until(settings);
}

std::string refusal(const TrainSettings& settings, const std::string& path) {
  try {
    resume(settings, path);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "not refused";
}

void expect_the_same_training(const TrainSettings& settings, std::initializer_list<int64_t> stops) {
  const ScratchFolder folder;
  const TrainResult whole = train_until(settings);
  ASSERT_EQ(whole.outcome, RunOutcome::kOk) << whole.error;
  for (const int64_t steps : stops) {
    stop_after(steps, settings, folder / "training");
    const TrainResult rest = resume(settings, folder / "training");
    EXPECT_EQ(rest.weights_checksum, whole.weights_checksum) << "after step " << steps;
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + steps, whole.losses.end())) << steps;
    EXPECT_EQ(rest.final_loss, whole.final_loss) << steps;
    EXPECT_EQ(rest.test_accuracy, whole.test_accuracy) << steps;
    EXPECT_EQ(rest.confusion, whole.confusion) << steps;
    EXPECT_EQ(rest.steps, kEpochs * kStepsOfEpoch - steps);
  }
}

TEST(Checkpoint, ResumesAfterAnyStepWithTheSameBits) {
  expect_the_same_training(short_training(1, false), {1, 2, 3, 4, 5});
}

TEST(Checkpoint, ResumesWithEveryOptimizerAndScheduleAndWithALoader) {
  TrainSettings settings = short_training(1, false);
  settings.data_on = DataOn::kHost;
  settings.plan = PlanMode::kPacked;
  for (const std::string_view optimizer : {"momentum", "rmsprop", "sgd"}) {
    settings.optimizer = optimizer;
    settings.loader_depth = optimizer == "momentum" ? 2 : 0;
    settings.schedule = optimizer == "sgd" ? Schedule::kConstant : Schedule::kOneCycle;
    expect_the_same_training(settings, {2});
  }
}

TEST(Checkpoint, ResumesReplicasWithTheOptimizerShardedOrNot) {
  expect_the_same_training(short_training(2, false), {2, 3});
  expect_the_same_training(short_training(4, true), {2, 3});
}

TEST(Checkpoint, TheFileDoesNotDependOnHowTheOptimizerIsSharded) {
  const ScratchFolder folder;
  stop_after(4, short_training(2, false), folder / "whole");
  stop_after(4, short_training(2, true), folder / "sharded");
  const TensorFile whole = load_safetensors(folder / "whole"), sharded = load_safetensors(folder / "sharded");
  EXPECT_EQ(whole.metadata, sharded.metadata);
  ASSERT_EQ(whole.tensors.size(), 30u);  // ten weights and two states of each
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    EXPECT_EQ(whole.tensors[i].name, sharded.tensors[i].name);
    EXPECT_EQ(whole.tensors[i].data, sharded.tensors[i].data) << whole.tensors[i].name;
  }
  EXPECT_EQ(resume(short_training(2, true), folder / "whole").weights_checksum,
            resume(short_training(2, false), folder / "sharded").weights_checksum);
  const TrainResult on_one = resume(short_training(1, false), folder / "sharded");
  const TrainResult on_two = resume(short_training(2, false), folder / "sharded");
  ASSERT_EQ(on_one.losses.size(), on_two.losses.size());
  for (size_t i = 0; i < on_one.losses.size(); ++i) EXPECT_NEAR(on_one.losses[i], on_two.losses[i], 1e-4);
}

TEST(Checkpoint, AFinishedTrainingIsTestedAndCanContinueWithAConstantRate) {
  const ScratchFolder folder;
  TrainSettings settings = short_training(1, false);
  settings.schedule = Schedule::kConstant;
  settings.save = folder / "training";
  settings.epochs = 1;
  const TrainResult first = train_until(settings);
  settings.save.clear();
  const TrainResult done = resume(settings, folder / "training");
  EXPECT_EQ(done.steps, 0);
  EXPECT_EQ(done.test_accuracy, first.test_accuracy);
  EXPECT_EQ(done.final_loss, first.final_loss);
  EXPECT_EQ(done.weights_checksum, first.weights_checksum);
  settings.epochs = 2;
  EXPECT_EQ(resume(settings, folder / "training").weights_checksum, train_until(settings).weights_checksum);
}

TEST(Checkpoint, LoadTakesWeightsOfACheckpointAndResumeRefusesWeightsAlone) {
  const ScratchFolder folder;
  const TrainSettings settings = short_training(1, false);
  stop_after(4, settings, folder / "training");
  TensorFile file = load_safetensors(folder / "training");
  file.tensors.resize(10);  // the weights come first
  save_safetensors(folder / "weights", file.tensors);
  TrainSettings from_training = settings, from_weights = settings;
  from_training.load_weights = folder / "training";
  from_weights.load_weights = folder / "weights";
  const TrainResult new_one = train_until(from_training);
  EXPECT_EQ(std::ssize(new_one.losses), kEpochs * kStepsOfEpoch);
  EXPECT_EQ(new_one.losses, train_until(from_weights).losses);
  EXPECT_NE(refusal(settings, folder / "weights").find("holds weights but no training"), std::string::npos);
  file.tensors.push_back({"more", {DType::kU8, {0}}, {}});
  save_safetensors(folder / "weights", file.tensors);
  EXPECT_THROW(train_until(from_weights), InvalidArgument);
}

TEST(Checkpoint, RefusesOtherSettingsAndNamesThem) {
  const ScratchFolder folder;
  const std::string path = folder / "training";
  TrainSettings settings = short_training(1, false);
  stop_after(1, settings, path);
  settings.batch = 4;
  settings.optimizer = "adamw";
  EXPECT_EQ(refusal(settings, path),
            path +
                ": cannot resume with other settings: batch is 4, in the file 8; optimizer is adamw, in the "
                "file adam; steps of an epoch is 6, in the file 3");
  settings = short_training(1, false);
  settings.epochs = 3;
  EXPECT_NE(refusal(settings, path).find("epochs is 3, in the file 2"), std::string::npos);
}

TEST(Checkpoint, RefusesABrokenFile) {
  const ScratchFolder folder;
  const TrainSettings settings = short_training(2, true);
  stop_after(1, settings, folder / "training");
  const TensorFile good = load_safetensors(folder / "training");
  const auto refused = [&](const std::function<void(TensorFile&)>& breaks) {
    TensorFile file = good;
    breaks(file);
    save_safetensors(folder / "broken", file.tensors, file.metadata);
    return refusal(settings, folder / "broken");
  };
  EXPECT_NE(refused([](TensorFile& file) { file.tensors.pop_back(); }).find("no tensor"), std::string::npos);
  for (const char* number : {"", "x", "-3", "0", "99999999999", "1.5"}) {
    const std::string message = refused([&](TensorFile& file) { file.metadata["steps done"] = number; });
    EXPECT_NE(message.find("steps done"), std::string::npos) << number << ": " << message;
  }
  EXPECT_NE(refused([](TensorFile& file) { file.metadata.erase("sum of losses"); }).find("'sum of losses'"),
            std::string::npos);
}

TEST(Checkpoint, AFailedWriteEndsTheTrainingAndLeavesTheLastFile) {
  const ScratchFolder folder;
  const std::string path = folder / "training";
  TrainSettings settings = short_training(2, false);
  stop_after(2, settings, path);
  const TensorFile before = load_safetensors(path);
  settings.save = folder / "no/such/folder";
  settings.checkpoint_every = 1;
  settings.resume = path;
  EXPECT_THROW(train_until(settings), InvalidArgument);
  EXPECT_EQ(load_safetensors(path).metadata, before.metadata);
}

TEST(Checkpoint, StatesInHostMemoryAreSavedAndResumedAsOnTheDevice) {
  TrainSettings settings = short_training(1, false);
  settings.plan = PlanMode::kPacked;
  const Dataset test = draw_digits(8, 4);
  RuntimeOptions on_device{.device = "rtx-2060", .plan = settings.plan};
  on_device.split_batch = SplitBatch::kNever;
  RuntimeOptions on_host = on_device;
  on_host.host_memory_bytes = int64_t{1} << 30;
  // The states are smaller than a page of the driver: some batches have one less without them.
  bool is_on_host = false;
  for (int64_t times = 1; times <= 16 && !is_on_host; ++times) {
    settings.batch = times * kImages;
    const auto solve = [&](int64_t memory_bytes) {
      on_host.memory_bytes = memory_bytes;
      return training_programs(settings, kStepsOfEpoch * settings.batch, test.count, on_host).front().memory;
    };
    is_on_host = amount_of(*solve(solve(1)->least_memory_bytes), kHostStateLever) > 0;
  }
  ASSERT_TRUE(is_on_host);
  const Dataset training = draw_digits(kStepsOfEpoch * settings.batch, 3);
  const auto train_on = [&](const RuntimeOptions& options, const TrainSettings& how, int64_t steps) {
    Runtime runtime(options);
    return train(how, training, test, runtime, [left = steps](const StepReport&) mutable {
      if (--left == 0) throw Stop();
    });
  };
  const TrainResult whole = train_on(on_device, settings, INT64_MAX);
  ASSERT_EQ(whole.outcome, RunOutcome::kOk) << whole.error;
  const std::pair<const RuntimeOptions&, const RuntimeOptions&> moves[] = {
      {on_host, on_device}, {on_device, on_host}, {on_host, on_host}};
  for (const auto& [from, to] : moves) {
    const ScratchFolder folder;
    TrainSettings first = settings, rest = settings;
    first.save = rest.resume = folder / "training";
    first.checkpoint_every = 1;
    EXPECT_THROW(train_on(from, first, 2), Stop);
    const TrainResult resumed = train_on(to, rest, INT64_MAX);
    ASSERT_EQ(resumed.outcome, RunOutcome::kOk) << resumed.error;
    EXPECT_EQ(resumed.weights_checksum, whole.weights_checksum);
    EXPECT_EQ(resumed.final_loss, whole.final_loss);
  }
}

}  // namespace
}  // namespace headroom
