// Steps, phases and categories found from stacks and lifetimes.
#include "trace/infer_marks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "tests/trace/fake_training.h"
#include "trace/categorize.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

int last_step(const Trace& trace) {
  return trace.marks.empty() ? 0 : trace.marks.back().step;
}

// Categories of the blocks of that size.
std::set<MemoryCategory> categories(const Trace& trace, int64_t bytes) {
  std::set<MemoryCategory> found;
  for (const TraceEvent& event : trace.events) {
    if (event.allocates && event.bytes == bytes)
      found.insert(trace.block_facts[static_cast<size_t>(event.block)].category);
  }
  return found;
}

TEST(InferMarks, FindsStepsAndPhasesInBothKindsOfStacks) {
  for (const auto& [native, repeats] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    FakeTraining training(native, repeats);
    for (int i = 0; i < 4; ++i) training.step(8 * kMiB);
    const Trace trace = training.take();
    EXPECT_EQ(last_step(trace), 4);
    ASSERT_FALSE(trace.marks.empty());
    EXPECT_EQ(trace.marks.front().step, 0);
    EXPECT_EQ(trace.marks.front().phase, StepPhase::kSetup);
    std::vector<StepPhase> second;
    for (const TraceMark& mark : trace.marks) {
      if (mark.step == 2) second.push_back(mark.phase);
    }
    EXPECT_EQ(second, (std::vector{StepPhase::kForward, StepPhase::kBackward, StepPhase::kOptimizer}));
  }
}

TEST(InferMarks, TheClosureOfAnOptimizersStepIsForwardAndBackward) {
  const std::string torch = "/venv/lib/python3.12/site-packages/torch/";
  const std::string step = torch + "optim/lbfgs.py:350 step\n" + torch + "optim/optimizer.py:533 wrapper\n" +
                           "/home/me/train.py:23 main";
  const std::string closure = "/home/me/train.py:20 closure\n" + step;
  EXPECT_TRUE(traits_of(step).is_optimizer);
  const StackTraits layer = traits_of(torch + "nn/modules/linear.py:134 forward\n" + torch +
                                      "nn/modules/module.py:1790 _call_impl\n" + closure);
  EXPECT_TRUE(layer.calls_module);
  EXPECT_FALSE(layer.is_optimizer);
  EXPECT_FALSE(traits_of(torch + "_tensor.py:630 backward\n" + closure).is_optimizer);
}

TEST(InferMarks, ALoopOverEpochsHoldsStepsAndEvaluation) {
  FakeTraining training;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int i = 0; i < 4; ++i) training.step(8 * kMiB);
    for (int i = 0; i < 3; ++i) {
      const uint64_t batch = training.user(30, 2 * kMiB);
      training.drop(31, training.forward(8 * kMiB, false, 31));
      training.drop(32, batch);
    }
  }
  // 4 of training and 3 of evaluation; the end of one loop and the beginning of the other may count as one
  // step.
  EXPECT_NEAR(last_step(training.take()), 21, 2);
}

TEST(InferMarks, LayersOfOneForwardAreNoSteps) {
  FakeTraining training;
  training.user(19, kMiB);
  training.forward(8 * kMiB);
  EXPECT_LE(last_step(training.take()), 1);
}

TEST(InferMarks, ATraceWithoutStacksHasNone) {
  TraceBuilder builder("x", "CSV");
  builder.allocate(1, 10);
  builder.free(1);
  const std::vector<int32_t> stacks(2, 0);
  EXPECT_TRUE(infer_marks(builder.take(), stacks).empty());
}

TEST(Categorize, NamesBlocksByThePhasesTheyLiveIn) {
  FakeTraining training;
  for (int i = 0; i < 4; ++i) training.step(8 * kMiB);
  const Trace trace = training.take();
  using enum MemoryCategory;
  EXPECT_EQ(categories(trace, 8 * kMiB), std::set{kActivations});
  EXPECT_EQ(categories(trace, 2 * kMiB), std::set{kInputs});
  EXPECT_EQ(categories(trace, kMiB / 2), std::set{kWorkspace});
  EXPECT_EQ(categories(trace, kMiB / 4), std::set{kGradients});
  EXPECT_EQ(categories(trace, kMiB / 8), std::set{kWorkspace});
  EXPECT_EQ(categories(trace, kMiB), (std::set{kWeights, kGradients, kOptimizerState}));
  for (const TraceBlock& block : trace.block_facts) EXPECT_NE(block.rule, CategoryRule::kNone);
}

TEST(Categorize, AWorkspaceThatALayerMadeBeforeTheHistoryIsNoWeight) {
  for (const bool native : {false, true}) {
    FakeTraining training(native);
    training.keep_in_layer(32 * kMiB);
    for (int i = 0; i < 3; ++i) training.keep_in_layer(5 * kMiB);  // results that the program keeps
    training.begin_history();
    for (int i = 0; i < 4; ++i) training.step(8 * kMiB);
    const Trace trace = training.take();
    using enum MemoryCategory;
    // Frames of C++ would name a workspace.
    EXPECT_EQ(categories(trace, 32 * kMiB), std::set{native ? kActivations : kWorkspace});
    EXPECT_EQ(categories(trace, 5 * kMiB), std::set{kActivations});
    EXPECT_TRUE(categories(trace, kMiB).contains(kWeights));
  }
}

TEST(Categorize, LeavesWhatTheFileSays) {
  FakeTraining training;
  training.step(8 * kMiB);
  Trace trace = training.take();
  for (TraceBlock& block : trace.block_facts) {
    block.category = MemoryCategory::kInputs;
    block.rule = CategoryRule::kNone;
  }
  categorize(trace);
  for (const TraceBlock& block : trace.block_facts) {
    EXPECT_EQ(block.category, MemoryCategory::kInputs);
    EXPECT_EQ(block.rule, CategoryRule::kNone);
  }
}

// An evaluation keeps the graphs of its losses: no backward pass reads them.
TEST(Categorize, ARecordedWorkspaceThatOutlivesItsStepIsAnActivation) {
  TraceBuilder builder("run.trace", "Headroom trace");
  uint64_t next = 1;
  for (int step = 1; step <= 3; ++step) {
    builder.mark(step, StepPhase::kForward, 0);
    builder.allocate(next++, 8 * kMiB, {.category = MemoryCategory::kWorkspace});
    builder.allocate(next, kMiB, {.category = MemoryCategory::kWorkspace});
    builder.free(next++);
  }
  Trace trace = builder.take();
  categorize(trace);
  EXPECT_EQ(categories(trace, 8 * kMiB), std::set{MemoryCategory::kActivations});
  EXPECT_EQ(categories(trace, kMiB), std::set{MemoryCategory::kWorkspace});
  EXPECT_EQ(trace.block_facts.front().rule, CategoryRule::kOutlivesStep);
}

TEST(Categorize, ARefusedRequestIsWhatAskedForIt) {
  const auto refused = [](FakeTraining& training) {
    const Trace trace = training.take();
    EXPECT_EQ(trace.device_events.back().rule, CategoryRule::kRefused);
    return trace.device_events.back().category;
  };
  FakeTraining in_layer, behind_layers, in_optimizer;
  for (FakeTraining* training : {&in_layer, &behind_layers}) {
    for (int i = 0; i < 3; ++i) training->step(8 * kMiB);
    training->user(19, 2 * kMiB);
    training->forward(8 * kMiB);
  }
  in_layer.fail_in_layer(64 * kMiB);
  behind_layers.fail(64 * kMiB, behind_layers.in_loop(22));  // the loss
  in_optimizer.forward(8 * kMiB);
  in_optimizer.optimizer_fails();
  EXPECT_EQ(refused(in_layer), MemoryCategory::kActivations);
  EXPECT_EQ(refused(behind_layers), MemoryCategory::kActivations);
  EXPECT_EQ(refused(in_optimizer), MemoryCategory::kOptimizerState);
}

TEST(Stack, TheLineIsTheUsersEvenBelowPackages) {
  const auto summary = [](const std::string& stack) { return summarize(frames_of(stack)); };
  const std::string packages = "/venv/lib/python3.12/site-packages/";
  const StackSummary found = summary(
      "??:0 torch::unwind::unwind()\n"
      "??:0 at::_ops::empty_memory_format::call(c10::ArrayRef<long>)\n"
      "??:0 at::_ops::mm::call(at::Tensor const&, at::Tensor const&)\n" +
      packages + "torch/nn/modules/linear.py:134 forward\n" + packages +
      "transformers/models/gpt2/modeling_gpt2.py:697 forward\n"
      "??:0 _PyEval_EvalFrameDefault\n"
      "/home/me/my models/a:b.py:29 loss\n/home/me/train.py:7 train");
  EXPECT_EQ(found.source, "/home/me/my models/a:b.py:29");
  EXPECT_EQ(found.module, "transformers/models/gpt2/modeling_gpt2.py:697");
  EXPECT_EQ(found.op, "aten::mm");
  EXPECT_EQ(summary("??:0 torch::autograd::generated::ConvolutionBackward0::apply(x)\n"
                    "??:0 torch::autograd::Engine::thread_main()")
                .op,
            "ConvolutionBackward0");
  EXPECT_EQ(summary("<ipython-input-3>:4 <module>").source, "<ipython-input-3>:4");
  EXPECT_EQ(summary("").source, "");
  EXPECT_TRUE(frames_of("/home/me/torch/train.py:7 train")[0].is_users());
  EXPECT_FALSE(frames_of("/src/pytorch/torch/nn/functional.py:7 relu")[0].is_users());
}

}  // namespace
}  // namespace headroom
