// Tests the report's verdict on programs: each cause in a training that has it, and not in one that looks
// like it.
#include "tools/report/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/trace/fake_training.h"
#include "trace/trace_builder.h"

namespace headroom::report {
namespace {

constexpr int64_t kMiB = FakeTraining::kMiB;

Verdict verdict_of(FakeTraining& training) {
  const Trace trace = training.take();
  return judge_history(History(trace), Steps(trace));
}

bool finds(const Verdict& verdict, Cause cause) {
  return std::ranges::find(verdict.findings, cause, &Finding::cause) != verdict.findings.end();
}

bool says(const Verdict& verdict, const char* text) {
  return verdict.sentence.find(text) != std::string::npos;
}

std::string all_of(const Verdict& verdict) {
  std::string text = verdict.sentence;
  for (const Finding& finding : verdict.findings) text += "\n" + finding.sentence;
  return text;
}

TEST(Verdict, AHealthyTrainingHasNoFinding) {
  for (const bool native : {false, true}) {
    FakeTraining training(native);
    for (int i = 0; i < 6; ++i) training.step(8 * kMiB);
    const Verdict verdict = verdict_of(training);
    EXPECT_TRUE(verdict.findings.empty()) << all_of(verdict);
    EXPECT_FALSE(verdict.failure);
    EXPECT_TRUE(verdict.sentence.starts_with("The peak of ")) << verdict.sentence;
  }
}

TEST(Verdict, ALeakNamesItsLineAndItsRate) {
  FakeTraining training;
  for (int i = 0; i < 6; ++i) {
    training.step(8 * kMiB);
    training.user(24, 64 * kMiB);
  }
  const Verdict verdict = verdict_of(training);
  ASSERT_EQ(verdict.findings.size(), 1u) << all_of(verdict);
  EXPECT_EQ(verdict.findings[0].cause, Cause::kLeak);
  EXPECT_TRUE(verdict.sentence.starts_with("Leak: 64 MiB a step since step 1, allocated at train.py:24"))
      << verdict.sentence;
}

TEST(Verdict, ALeakWithoutWhichTheRequestWouldNotFitIsNoCause) {
  for (const bool would_fit : {false, true}) {
    FakeTraining training;
    for (int i = 0; i < 6; ++i) {
      training.step(8 * kMiB);
      training.user(24, 64 * kMiB);
    }
    const int64_t lacking = would_fit ? 200 * kMiB : 500 * kMiB;
    training.fail_in_layer(4000 * kMiB, 0, 4000 * kMiB - lacking);
    const Verdict verdict = verdict_of(training);
    EXPECT_EQ(finds(verdict, Cause::kLeak), would_fit) << all_of(verdict);
  }
}

TEST(Verdict, ALeakSaysWhenItFillsTheDevice) {
  FakeTraining training;
  for (int i = 0; i < 6; ++i) {
    training.step(8 * kMiB);
    training.user(24, 64 * kMiB);
  }
  const Trace trace = training.take();
  const History history(trace);
  const int64_t taken = history.peak_reserved_bytes.value_or(history.peak_bytes);
  const auto sentence = [&](std::optional<int64_t> device_bytes) {
    return judge_history(history, Steps(trace), device_bytes).sentence;
  };
  EXPECT_TRUE(sentence(taken + 10 * 64 * kMiB).ends_with("; at this rate it fails after 10 more steps."));
  EXPECT_TRUE(sentence(taken / 2).ends_with("; at this rate it fails after 0 more steps."));
  EXPECT_EQ(sentence({}).find("at this rate"), std::string::npos);
}

TEST(Verdict, WhatIsDroppedNowAndThenIsKeptWhileItGrowsBeyondMemory) {
  for (const int last : {6, 12}) {
    FakeTraining training;
    for (const int steps : {6, 5, last}) {
      FakeTraining::Blocks state;
      for (int i = 0; i < steps; ++i) {
        training.step(8 * kMiB);
        state.push_back(training.user(24, 64 * kMiB));
      }
      if (steps != last || last == 6) training.drop(25, state);
    }
    training.fail_in_layer(100 * kMiB);
    const Verdict verdict = verdict_of(training);
    EXPECT_EQ(finds(verdict, Cause::kLeak), last == 12) << all_of(verdict);
  }
}

TEST(Verdict, AQueueOfLimitedLengthIsNoLeak) {
  FakeTraining training;
  std::vector<uint64_t> queue;
  for (int i = 0; i < 9; ++i) {
    training.step(8 * kMiB);
    queue.push_back(training.user(24, 64 * kMiB));
    if (queue.size() <= 4) continue;
    training.drop(25, queue.front());
    queue.erase(queue.begin());
  }
  EXPECT_TRUE(verdict_of(training).findings.empty());
}

TEST(Verdict, ACacheThatIsFullIsNoLeak) {
  FakeTraining training;
  for (int i = 0; i < 9; ++i) {
    training.step(8 * kMiB);
    if (i < 3) training.user(24, 64 * kMiB);
  }
  EXPECT_TRUE(verdict_of(training).findings.empty());
}

TEST(Verdict, AGrowingBatchNamesTheGrowthOfActivations) {
  for (const auto& [forward, growth] :
       {std::pair(16 * kMiB, "batch was doubled"), {896 * kMiB, "batch grew 110 times"}}) {
    FakeTraining training;
    for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
    training.user(19, forward / 4);
    training.forward(forward);
    training.fail_in_layer(100 * kMiB);
    const Verdict verdict = verdict_of(training);
    EXPECT_TRUE(verdict.failure && finds(verdict, Cause::kGrowingBatch)) << all_of(verdict);
    EXPECT_TRUE(
        verdict.sentence.starts_with("Out of memory in step 4, forward at train.py:21 (net.py:7): 100 MiB"))
        << verdict.sentence;
    EXPECT_TRUE(says(verdict, growth)) << verdict.sentence;
  }
}

TEST(Verdict, StepsThatGrowFromOneToTheNextAreNamed) {
  const auto train = [](bool grows) {
    FakeTraining training;
    for (int i = 0; i < 20; ++i) training.step((grows ? 4 + i : 4 + 7 * i % 20) * kMiB);
    training.forward(24 * kMiB);
    training.fail_in_layer(100 * kMiB);
    return verdict_of(training);
  };
  const Verdict verdict = train(true);
  ASSERT_TRUE(finds(verdict, Cause::kGrowingBatch)) << all_of(verdict);
  EXPECT_TRUE(says(verdict, "the largest tensor of a step grew from 4 MiB in step 1 to 23 MiB in step 20"))
      << verdict.sentence;
  EXPECT_EQ(all_of(train(false)).find("the largest tensor of a step grew"), std::string::npos);
}

TEST(Verdict, TheFirstStepsOfALargerBatchMayFit) {
  FakeTraining training;
  for (const int size : {8, 8, 8, 16, 16}) training.step(size * kMiB);
  training.user(19, 4 * kMiB);
  training.forward(16 * kMiB);
  training.fail_in_layer(100 * kMiB);
  const Verdict verdict = verdict_of(training);
  EXPECT_TRUE(says(verdict, "the batch was doubled since step 3")) << all_of(verdict);
}

TEST(Verdict, StepsOfMoreRoundsGrowThoughNoTensorDoes) {
  FakeTraining training;
  for (int i = 0; i < 20; ++i) {
    FakeTraining::Blocks made;
    for (int round = 0; round < 2 + i; ++round) {
      for (const uint64_t block : training.forward(8 * kMiB)) made.push_back(block);
    }
    training.backward(made);
    training.optimizer_step();
  }
  training.forward(8 * kMiB);
  training.fail_in_layer(100 * kMiB);
  const Verdict verdict = verdict_of(training);
  EXPECT_TRUE(says(verdict, "times as much in step 20 as in step 1")) << verdict.sentence;
}

TEST(Verdict, BatchesThatVaryAreNotGrowing) {
  FakeTraining training;
  for (const int size : {16, 8, 12, 16, 4, 12, 16}) training.step(size * kMiB);
  EXPECT_TRUE(verdict_of(training).findings.empty());
  FakeTraining failing;
  for (const int size : {16, 8, 12}) failing.step(size * kMiB);
  failing.user(19, 4 * kMiB);
  failing.forward(16 * kMiB);
  failing.fail_in_layer(100 * kMiB);
  EXPECT_FALSE(finds(verdict_of(failing), Cause::kGrowingBatch));
}

TEST(Verdict, AnEvaluationThatKeepsGraphsNeedsNoGrad) {
  FakeTraining training;
  for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
  for (int i = 0; i < 6; ++i) {
    const uint64_t batch = training.user(30, 2 * kMiB);
    training.forward(8 * kMiB, true, 31);
    training.drop(30, batch);
  }
  training.fail_in_layer(8 * kMiB);
  const Verdict verdict = verdict_of(training);
  EXPECT_TRUE(finds(verdict, Cause::kGraphsKept)) << all_of(verdict);
  EXPECT_NE(verdict.findings[0].advice.find("no_grad"), std::string::npos);
}

TEST(Verdict, ThreeStepsThatKeepAllTheyMakeAreEnough) {
  for (const int kept : {2, 3}) {
    FakeTraining training;
    for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
    for (int i = 0; i < kept; ++i) {
      const uint64_t batch = training.user(30, 2 * kMiB);
      training.forward(8 * kMiB, true, 31);
      training.drop(30, batch);
    }
    const Verdict verdict = verdict_of(training);
    EXPECT_EQ(finds(verdict, Cause::kGraphsKept), kept == 3) << all_of(verdict);
  }
}

TEST(Verdict, AnEvaluationThatDropsItsGraphsIsAFaultOnlyWhereItRunsOutOfMemory) {
  for (const bool fails : {false, true}) {
    FakeTraining training;
    for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
    for (int i = 0; i < 4; ++i) {
      const uint64_t batch = training.user(30, 8 * kMiB);
      FakeTraining::Blocks graph = training.forward(32 * kMiB, true, 31);
      const FakeTraining::Blocks second = training.forward(32 * kMiB, true, 31);
      graph.insert(graph.end(), second.begin(), second.end());
      training.drop(32, graph);
      training.drop(30, batch);
    }
    if (fails) {
      training.user(30, 8 * kMiB);
      training.forward(32 * kMiB, true, 31);
      training.fail_in_layer(32 * kMiB);
    }
    const Verdict verdict = verdict_of(training);
    EXPECT_EQ(finds(verdict, Cause::kGraphsKept), fails) << all_of(verdict);
    EXPECT_EQ(verdict.sentence.find("which no backward uses") != std::string::npos, fails)
        << verdict.sentence;
  }
}

TEST(Verdict, AnEvaluationWithoutGraphsIsFine) {
  FakeTraining training;
  for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
  for (int i = 0; i < 6; ++i) {
    const uint64_t batch = training.user(30, 2 * kMiB);
    training.drop(31, training.forward(8 * kMiB, false, 31));
    training.drop(30, batch);
  }
  const Verdict verdict = verdict_of(training);
  EXPECT_TRUE(verdict.findings.empty()) << all_of(verdict);
}

TEST(Verdict, LossesThatAccumulateKeepTheirGraphs) {
  FakeTraining training;
  for (int i = 0; i < 6; ++i) {
    const uint64_t batch = training.user(19, 2 * kMiB);
    training.forward(8 * kMiB);
    training.user(22, 4);
    training.drop(19, batch);
  }
  training.fail_in_layer(8 * kMiB);
  const Verdict verdict = verdict_of(training);
  EXPECT_TRUE(finds(verdict, Cause::kLossesKept)) << all_of(verdict);
}

// A net of one layer as the tracer records it: a batch, its layer's result, a temporary and a loss. Of each
// step the program keeps the chosen blocks, and frees the batch and the loss of the step before.
class OneLayer {
 public:
  struct Kept {
    bool batch = false, output = false;
  };

  void step(Kept kept, bool backward = false) {
    using enum MemoryCategory;
    builder_.mark(++step_, StepPhase::kForward, 0);
    const uint64_t batch = allocate(64 * kMiB, kInputs, "");
    const uint64_t output = allocate(64 * kMiB, kActivations, "Linear");
    if (step_ == 1) allocate(33 * kMiB, kLibrary, "Linear");
    builder_.free(allocate(32 * kMiB, kWorkspace, ""), 0, {});
    const uint64_t loss = allocate(4, kWorkspace, "");
    if (backward) {
      builder_.mark(step_, StepPhase::kBackward, 0);
      builder_.free(allocate(kMiB, kGradients, "Linear"), 0, {});
      builder_.mark(step_, StepPhase::kForward, 0);
    }
    if (!kept.output) builder_.free(output, 0, {});
    if (!kept.batch) builder_.free(batch, 0, {});
    if (loss_ != 0) builder_.free(loss_, 0, {});
    loss_ = loss;
  }

  Verdict verdict() {
    const Trace trace = builder_.take();
    return judge_history(History(trace), Steps(trace));
  }

 private:
  uint64_t allocate(int64_t bytes, MemoryCategory category, const std::string& module) {
    const std::string line = "/home/me/train.py:11 step";
    const std::string call =
        "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py:1790 _call_impl\n";
    builder_.allocate(++id_, bytes,
                      {.source = "train.py:11",
                       .module = module,
                       .stack = module.empty() ? line : call + line,
                       .category = category});
    return id_;
  }

  TraceBuilder builder_{"train.py:make_step", "Headroom trace"};
  int64_t step_ = 0;
  uint64_t id_ = 0, loss_ = 0;
};

TEST(Verdict, LossesOfANetOfOneLayerKeepTheirGraphs) {
  for (const int steps : {3, 6, 12}) {  // three are traced by default
    OneLayer program;
    for (int i = 0; i < steps; ++i) program.step({.batch = true, .output = true});
    const Verdict verdict = program.verdict();
    ASSERT_TRUE(finds(verdict, Cause::kLossesKept)) << steps << all_of(verdict);
    // The workspace of a library's handle is made once, and the temporary is freed.
    EXPECT_TRUE(says(verdict, "128 MiB a step since step 1")) << verdict.sentence;
  }
}

TEST(Verdict, GraphsThatBackwardRetainsAreKept) {
  OneLayer program;
  for (int i = 0; i < 6; ++i) program.step({.batch = true, .output = true}, true);
  const Verdict verdict = program.verdict();
  ASSERT_TRUE(finds(verdict, Cause::kGraphsKept)) << all_of(verdict);
  EXPECT_NE(verdict.findings[0].advice.find("retain_graph"), std::string::npos) << verdict.findings[0].advice;
}

TEST(Verdict, OutputsWithoutTheirBatchesAreALeakAndNoGraphs) {
  for (const bool backward : {false, true}) {
    OneLayer program;
    for (int i = 0; i < 6; ++i) program.step({.output = true}, backward);
    const Verdict verdict = program.verdict();
    ASSERT_TRUE(finds(verdict, Cause::kLeak)) << all_of(verdict);
    EXPECT_TRUE(says(verdict, "64 MiB a step since step 1")) << verdict.sentence;
    EXPECT_NE(verdict.findings[0].advice.find(".detach().cpu()"), std::string::npos);
  }
}

TEST(Verdict, ACacheOfTwoBatchesIsNoLeakInThreeSteps) {
  OneLayer program;
  for (int i = 0; i < 3; ++i) program.step({.batch = i < 2});
  const Verdict verdict = program.verdict();
  EXPECT_TRUE(verdict.findings.empty()) << all_of(verdict);
}

TEST(Verdict, KeptNumbersAreNoFinding) {
  FakeTraining training;
  for (int i = 0; i < 6; ++i) {
    training.step(8 * kMiB);
    training.user(24, 4);  // losses.append(loss.detach())
  }
  EXPECT_TRUE(verdict_of(training).findings.empty());
}

TEST(Verdict, GradientsThatStayAreFound) {
  FakeTraining training;
  for (int i = 0; i < 5; ++i) {
    const uint64_t batch = training.user(19, 2 * kMiB);
    training.backward(training.forward(8 * kMiB));
    training.optimizer_step();
    training.drop(19, batch);
  }
  EXPECT_TRUE(finds(verdict_of(training), Cause::kGradientsKept));
}

TEST(Verdict, GradientsThatAccumulateAreFine) {
  FakeTraining training;
  for (int i = 0; i < 12; ++i) {
    const uint64_t batch = training.user(19, 2 * kMiB);
    training.backward(training.forward(8 * kMiB));
    if (i % 4 == 3) {
      training.optimizer_step();
      training.zero_grad(24);
    }
    training.drop(19, batch);
  }
  EXPECT_TRUE(verdict_of(training).findings.empty());
}

TEST(Verdict, TheOptimizersFirstStepMayNotFit) {
  FakeTraining training;
  training.user(19, 2 * kMiB);
  training.backward(training.forward(8 * kMiB));
  training.optimizer_fails();
  const Verdict verdict = verdict_of(training);
  ASSERT_TRUE(finds(verdict, Cause::kOptimizerState)) << all_of(verdict);
  EXPECT_TRUE(says(verdict, "15 MiB of state, beside 8 MiB of weights and 8 MiB of gradients"));
}

TEST(Verdict, OptimizersThatAreMadeAnewAndKeptAreFound) {
  FakeTraining training;
  for (int i = 0; i < 10; ++i) {
    if (i % 4 == 0) training.begin_optimizer();
    training.step(8 * kMiB);
  }
  const Verdict verdict = verdict_of(training);
  ASSERT_EQ(verdict.findings.size(), 1u) << all_of(verdict);
  EXPECT_EQ(verdict.sentence,
            "Optimizers are kept: 48 MiB of state that optimizers made anew in 3 steps (1, 5, 9) and that is "
            "not freed.");
}

TEST(Verdict, AGradientAsLargeAsTheLargestWeightIsNamed) {
  for (const int64_t requested : {40 * kMiB, 41 * kMiB}) {
    FakeTraining training;
    training.add_weight(40 * kMiB);
    const FakeTraining::Blocks live = training.forward(kMiB / 8);
    training.backward({live.begin(), live.begin() + 1});
    training.fail_in_backward(requested);
    const Verdict verdict = verdict_of(training);
    const bool is_named =
        verdict.sentence.ends_with("the gradient of a weight of 40 MiB is as large as the weight.");
    EXPECT_EQ(is_named, requested == 40 * kMiB) << all_of(verdict);
  }
}

TEST(Verdict, TheOptimizersStateIsNoCauseLater) {
  FakeTraining training;
  for (int i = 0; i < 5; ++i) training.step(8 * kMiB);
  training.user(19, 2 * kMiB);
  training.fail_in_layer(8 * kMiB);
  EXPECT_FALSE(finds(verdict_of(training), Cause::kOptimizerState));
}

// 64 MiB in blocks of 1 MiB, every other one freed, after six steps that keep so much each.
Verdict verdict_of_holes(int64_t requested, int64_t kept = 0) {
  FakeTraining training;
  const uint64_t first = training.next_address;
  for (int i = 0; kept > 0 && i < 6; ++i) {
    training.step(kMiB / 4);
    training.user(24, kept);
  }
  training.reserve(first, static_cast<int64_t>(training.next_address - first));
  training.reserve(training.next_address, 100 * kMiB);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(training.user(19, kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) training.drop(20, blocks[i]);
  training.fail(requested, training.in_loop(21), 1000 * kMiB);
  return verdict_of(training);
}

TEST(Verdict, IdleMemoryInPiecesIsFragmentation) {
  const Verdict verdict = verdict_of_holes(30 * kMiB);
  ASSERT_TRUE(finds(verdict, Cause::kFragmentation)) << all_of(verdict);
  EXPECT_EQ(verdict.failure->idle_pieces, 50);
  EXPECT_EQ(verdict.failure->largest_idle_bytes, kMiB);
}

TEST(Verdict, PiecesAreToldBeforeWhatIsKeptWhereTheyAreAboutAsMuch) {
  const Verdict pieces = verdict_of_holes(30 * kMiB, 40 * kMiB),
                leak = verdict_of_holes(30 * kMiB, 90 * kMiB);
  ASSERT_TRUE(finds(pieces, Cause::kLeak)) << all_of(pieces);
  EXPECT_EQ(pieces.findings[0].cause, Cause::kFragmentation) << all_of(pieces);
  EXPECT_GT(pieces.findings[1].bytes, pieces.findings[0].bytes);
  ASSERT_FALSE(leak.findings.empty());
  EXPECT_EQ(leak.findings[0].cause, Cause::kLeak) << all_of(leak);
}

TEST(Verdict, TooLittleMemoryIsNotFragmentation) {
  const Verdict verdict = verdict_of_holes(80 * kMiB);
  ASSERT_TRUE(verdict.failure);
  EXPECT_FALSE(finds(verdict, Cause::kFragmentation)) << all_of(verdict);
  EXPECT_EQ(verdict.failure->judgment.cause, Cause::kLimit);
}

TEST(Verdict, AFailureThatTheProgramSurvivesIsNone) {
  FakeTraining training;
  for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
  training.fail_in_layer(800 * kMiB);
  for (int i = 0; i < 3; ++i) training.step(8 * kMiB);
  const Verdict verdict = verdict_of(training);
  EXPECT_FALSE(verdict.failure);
  EXPECT_TRUE(verdict.findings.empty()) << all_of(verdict);
}

}  // namespace
}  // namespace headroom::report
