// Predictions for traces: their parts add up, the edge is an edge, and advice in PyTorch's words holds when
// it is followed.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/fit.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/app/setup.h"
#include "tools/workload/recorded_setup.h"
#include "tools/workload/torch_changes.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

// A net of `layers` layers, each of which keeps twice `kept_mib` and `sums_mib` for the backward pass, in two
// training steps.
Trace training(int layers, int64_t kept_mib, int64_t sums_mib = 0) {
  TraceBuilder builder("train.py:make_step", "PyTorch memory snapshot");
  uint64_t next = 1;
  const uint64_t weights = next++;
  builder.mark(0, StepPhase::kSetup, 0);
  builder.allocate(weights, 30 * kMiB, {.op = "aten::empty", .category = MemoryCategory::kWeights});
  for (int step = 1; step <= 2; ++step) {
    builder.mark(step, StepPhase::kForward, 0);
    std::vector<uint64_t> kept;
    for (int layer = 0; layer < layers; ++layer) {
      const std::string module = "layers." + std::to_string(layer);
      const auto keep = [&](const char* part, int64_t mib) {
        kept.push_back(next);
        builder.allocate(next++, mib * kMiB,
                         {.op = "aten::addmm",
                          .source = "model.py:12",
                          .module = module + part,
                          .category = MemoryCategory::kActivations});
      };
      keep(".linear", kept_mib);
      keep(".relu", kept_mib);
      if (sums_mib > 0) keep(".norm", sums_mib);
    }
    builder.mark(step, StepPhase::kBackward, 0);
    for (auto block = kept.rbegin(); block != kept.rend(); ++block) builder.free(*block);
  }
  return builder.take();
}

RunSetup card(int64_t total_bytes, const char* strategy = "pytorch") {
  RuntimeOptions options;
  options.device = "rtx-3090";
  options.device_memory_bytes = total_bytes;
  options.strategy = strategy;
  return setup_of(options);
}

TEST(PredictionOfATrace, PartsAddUpToTheProcess) {
  const Trace trace = training(4, 25);
  const RunSetup setup = card(8 * kGiB);
  const Prediction prediction = predict(traced(trace), setup);
  ASSERT_TRUE(prediction.fits);
  EXPECT_EQ(prediction.requested_bytes, trace.peak_bytes);
  EXPECT_EQ(prediction.total_bytes, prediction.reserved_bytes + setup.device.overhead_bytes());
  const LiveSet live = largest_live_set(trace);
  EXPECT_EQ(live.by_category[static_cast<size_t>(MemoryCategory::kActivations)], 8 * 25 * kMiB);
  EXPECT_EQ(live.by_category[static_cast<size_t>(MemoryCategory::kWeights)], 30 * kMiB);
  ASSERT_EQ(live.by_module.size(), 9u);
  EXPECT_EQ(live.by_module.back().first, kNoModule);
  EXPECT_EQ(live.by_line.front().first, "model.py:12");
  EXPECT_EQ(live.by_line.front().second, 8 * 25 * kMiB);
  EXPECT_EQ(live.where, "aten::addmm in layers.3.relu at model.py:12");
}

// Gradients and states of a parameter count for the parameter's module, and the shares add up to the total.
TEST(PredictionOfATrace, AModuleHasItsWeightsGradientsAndOptimizerState) {
  TraceBuilder builder("train.py:make_step", "Headroom trace");
  uint64_t next = 1;
  const auto allocate = [&](int64_t mib, const char* tag, const char* module, MemoryCategory category) {
    builder.allocate(next++, mib * kMiB,
                     {.op = "aten::x", .tag = tag, .module = module, .category = category});
  };
  allocate(16, "e.weight", "", MemoryCategory::kWeights);
  allocate(4, "b.0.q.weight", "", MemoryCategory::kWeights);
  allocate(1, "scale", "", MemoryCategory::kWeights);
  allocate(5, "", "e", MemoryCategory::kActivations);
  allocate(7, "e.weight", "", MemoryCategory::kActivations);
  allocate(8, "cuBLAS workspace", "b.0.q", MemoryCategory::kLibrary);
  allocate(16, "e.weight", "", MemoryCategory::kGradients);
  allocate(16, "e.weight exp_avg", "", MemoryCategory::kOptimizerState);
  allocate(4, "b.0.q.weight exp_avg", "", MemoryCategory::kOptimizerState);
  allocate(2, "some.buffer", "", MemoryCategory::kOptimizerState);
  const Trace trace = builder.take();
  const LiveSet live = largest_live_set(trace);
  const std::vector<std::pair<std::string_view, int64_t>> expected = {
      {"e", 16 + 5 + 16 + 16}, {"b.0.q", 4 + 4}, {kNoModule, 1 + 7 + 8 + 2}};
  ASSERT_EQ(live.by_module.size(), expected.size());
  int64_t sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(live.by_module[i].first, expected[i].first);
    EXPECT_EQ(live.by_module[i].second, expected[i].second * kMiB) << expected[i].first;
    sum += live.by_module[i].second;
  }
  EXPECT_EQ(sum, trace.peak_bytes);
  EXPECT_TRUE(live.by_line.empty()) << "the trace names no line";
}

TEST(PredictionOfATrace, AModelOfAPackageCountsForThePackagesLines) {
  const std::string packages = "/usr/lib/python3.12/site-packages/", user = "/src/train.py:31 main";
  const std::string call = packages + "torch/nn/modules/module.py:1790 Module._call_impl\n";
  const std::string linear = packages + "torch/nn/modules/linear.py:130 Linear.forward\n" + call;
  const std::string gpt2 =
      packages + "transformers/models/gpt2/modeling_gpt2.py:212 GPT2MLP.forward\n" + call;
  const std::string trainer = packages + "transformers/trainer.py:1900 Trainer.train\n";
  TraceBuilder builder("train.py", "Headroom trace");
  uint64_t next = 1;
  const auto allocate = [&](int64_t mib, const std::string& stack) {
    builder.allocate(next++, mib * kMiB, {.op = "aten::x", .source = "train.py:31", .stack = stack});
  };
  allocate(8, linear + gpt2 + trainer + user);
  allocate(4, gpt2 + trainer + user);
  allocate(2, trainer + user);
  allocate(1, linear + user);
  const LiveSet live = largest_live_set(builder.take());
  const MemoryShares expected = {{"gpt2/modeling_gpt2.py:212", 12 * kMiB}, {"train.py:31", 3 * kMiB}};
  EXPECT_EQ(live.by_line, expected);
}

TEST(PredictionOfATrace, TheMarginIsTheEdgeToThePage) {
  const Trace trace = training(4, 25);
  for (const char* strategy : {"pytorch", "pytorch,expandable_segments:True", "allow-growth", "mapped"}) {
    for (const int64_t total : {500 * kMiB, 2 * kGiB}) {
      const RunSetup setup = card(total, strategy);
      const Prediction prediction = predict(traced(trace), setup);
      EXPECT_EQ(prediction.fits, total == 2 * kGiB) << strategy;
      ASSERT_TRUE(prediction.margin_bytes) << strategy;
      const int64_t edge = total - *prediction.margin_bytes;
      EXPECT_TRUE(fits(traced(trace), card(edge, strategy))) << strategy;
      EXPECT_FALSE(fits(traced(trace), card(edge - 2 * kMiB, strategy))) << strategy;
    }
  }
}

TEST(PredictionOfATrace, WhatDoesNotFitNamesTheRequestWithoutRoom) {
  const Trace trace = training(8, 50);
  const Prediction prediction = predict(traced(trace), card(kGiB));
  ASSERT_FALSE(prediction.fits);
  ASSERT_TRUE(prediction.failed_event);
  EXPECT_TRUE(prediction.reason.starts_with("out of memory: tried to allocate 50.00 MiB"))
      << prediction.reason;
  EXPECT_NE(prediction.reason.find(" (strategy pytorch: "), std::string::npos) << prediction.reason;
  EXPECT_LT(*prediction.margin_bytes, 0);
}

TEST(PredictionOfATrace, ARequestWithoutALineIsPlacedByItsStepAndTheLineBefore) {
  TraceBuilder builder("x.pickle", "PyTorch memory snapshot");
  builder.allocate(1, kMiB);
  builder.mark(1, StepPhase::kForward, 0);
  builder.allocate(2, kMiB, {.op = "aten::mm", .source = "train.py:31", .module = "fc"});
  builder.mark(1, StepPhase::kBackward, 0);
  builder.allocate(3, kMiB);
  builder.allocate(4, kMiB, {.op = "aten::mul"});
  const Trace trace = builder.take();
  EXPECT_EQ(place_text(trace, 0), "");
  EXPECT_EQ(place_text(trace, 1), "aten::mm in fc at train.py:31");
  EXPECT_EQ(place_text(trace, 2), "step 1, backward, after train.py:31");
  EXPECT_EQ(place_text(trace, 3), "aten::mul, step 1, backward, after train.py:31");
}

TEST(PredictionOfATrace, ContextThatLeavesNothingIsSaid) {
  const Trace trace = training(1, 1);
  const Prediction prediction = predict(traced(trace), card(240 * kMiB));
  EXPECT_FALSE(prediction.fits);
  EXPECT_EQ(prediction.reason, "context, libraries and other processes leave no memory");
}

TEST(TorchAdvice, CheckpointsFreeWhatTheForwardPassKeepsButTheirResults) {
  const Trace trace = training(8, 50);
  std::vector<std::string> all;
  for (int layer = 0; layer < 8; ++layer) all.push_back("layers." + std::to_string(layer));
  const Trace recomputed = with_checkpoints(trace, all);
  EXPECT_EQ(trace.peak_bytes, (30 + 16 * 50) * kMiB);
  // A result for each layer, and the other half of one layer at a time.
  EXPECT_EQ(recomputed.peak_bytes, (30 + 8 * 50 + 50) * kMiB);
  EXPECT_EQ(with_checkpoints(trace, {}).peak_bytes, trace.peak_bytes);
}

// For example, a norm's statistics are computed after the value that the next module reads.
TEST(TorchAdvice, ACheckpointKeepsAResultBehindWhichSmallSumsAreMade) {
  const Trace recomputed = with_checkpoints(training(8, 50, 1), {"layers.0"});
  // The result of layer 0; of the other seven all.
  EXPECT_EQ(recomputed.peak_bytes, (30 + 50 + 7 * 101) * kMiB);
}

TEST(TorchAdvice, ProposesTheFewestActivationsThatDo) {
  const Trace trace = training(8, 50);
  const RunSetup setup = card(kGiB);
  const std::vector<std::string> changes = find_torch_changes(trace, setup);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(
      changes[0].starts_with("checkpoint modules layers.0-2"
                             "  # "))
      << changes[0];
  EXPECT_TRUE(find_torch_changes(trace, card(500 * kMiB)).empty());
}

TEST(TorchAdvice, NamesModulesOfOnePatternByTheirNumbers) {
  const std::vector<std::string> changes = find_torch_changes(training(12, 50), card(kGiB + 300 * kMiB));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(
      changes[0].starts_with("checkpoint modules layers.0-4"
                             "  # "))
      << changes[0];
}

TEST(TorchAdvice, ProposesOnlyTheCheckpointsThatATraceOfTheProgramProves) {
  const Trace trace = training(8, 50);
  std::vector<std::vector<std::string>> asked;
  const auto changes_if = [&](bool helps) {
    return find_torch_changes(trace, card(kGiB), [&](const std::vector<std::string>& modules) {
      asked.push_back(modules);
      return std::optional(helps ? with_checkpoints(trace, modules) : trace);
    });
  };
  ASSERT_EQ(changes_if(true).size(), 1u);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_TRUE(changes_if(false).empty()) << "what the estimate says is not what the program does";
}

// The rest of a large block keeps its segment, and the next block needs another one.
TEST(TorchAdvice, ProposesExpandableSegmentsWhereTheyAreEnough) {
  TraceBuilder builder("grow.py:make_step", "PyTorch memory snapshot");
  for (uint64_t i = 1; i <= 5; ++i) {
    builder.allocate(i, static_cast<int64_t>(40 + 20 * i) * kMiB);
    builder.free(i);
    builder.allocate(100 + i, static_cast<int64_t>(30 + 10 * i) * kMiB);  // fits into no other rest
  }
  const Trace trace = builder.take();
  const RunSetup setup = card(find_profile("rtx-3090").overhead_bytes() + trace.peak_bytes + 60 * kMiB);
  ASSERT_FALSE(fits(traced(trace), setup));
  const std::vector<std::string> changes = find_torch_changes(trace, setup);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(
      changes[0].starts_with("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
                             "  # "))
      << changes[0];
}

// Every other block of 15 MiB is freed: each page of 20 MiB keeps a part of one.
TEST(TorchAdvice, ProposesMappedWhereExpandableSegmentsKeepTheirPages) {
  TraceBuilder builder("train.py:make_step", "PyTorch memory snapshot");
  builder.allocate(1000, 40 * 15 * kMiB);
  builder.free(1000);
  for (uint64_t i = 0; i < 40; ++i) builder.allocate(i, 15 * kMiB);
  for (uint64_t i = 0; i < 40; i += 2) builder.free(i);
  builder.allocate(1001, 200 * kMiB);
  const Trace trace = builder.take();
  const RunSetup setup = card(find_profile("rtx-3090").overhead_bytes() + 640 * kMiB);
  ASSERT_FALSE(fits(traced(trace), setup));
  const std::vector<std::string> changes = find_torch_changes(trace, setup);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(
      changes[0].starts_with("import headroom.torch; headroom.torch.use(\"mapped\")"
                             "  # "))
      << changes[0];
}

// The first step leaves eight idle segments of 100 MiB. The second puts a block of 60 MiB into each of them,
// so none can go back when it needs 400 MiB at once.
Trace steps_of_two_sizes() {
  TraceBuilder builder("train.py:make_step", "PyTorch memory snapshot");
  uint64_t next = 1;
  const auto step = [&](int number, const std::vector<int64_t>& sizes_mib) {
    builder.mark(number, StepPhase::kForward, 0);
    const uint64_t first = next;
    for (const int64_t size : sizes_mib) {
      builder.allocate(next++, size * kMiB, {.op = "aten::mm", .source = "train.py:14"});
    }
    builder.mark(number, StepPhase::kBackward, 0);
    for (uint64_t block = first; block < next; ++block) builder.free(block);
  };
  step(1, std::vector<int64_t>(8, 100));
  std::vector<int64_t> second(8, 60);
  second.push_back(400);
  step(2, second);
  return builder.take();
}

TEST(TorchAdvice, ProposesToEmptyTheCacheWhereThatIsEnough) {
  const Trace trace = steps_of_two_sizes();
  const RunSetup setup = card(find_profile("rtx-3090").overhead_bytes() + 1000 * kMiB);
  ASSERT_FALSE(fits(traced(trace), setup));
  const std::vector<std::string> changes = find_torch_changes(trace, setup);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(
      changes[1],
      "torch.cuda.empty_cache() before train.py:14, at the beginning of each step  # gives 800.00 MiB of "
      "idle segments back there");
  const Trace emptied = with_empty_cache(trace, StepPhase::kForward);
  EXPECT_TRUE(fits(traced(emptied), setup));
  // No memory is idle before the backward pass.
  EXPECT_FALSE(fits(traced(with_empty_cache(trace, StepPhase::kBackward)), setup));
}

TEST(TorchAdvice, ARecordedFailureIsCuredByWhatAReplayOfItShows) {
  Trace trace = steps_of_two_sizes();
  // The history as it ends when the last request of 400 MiB fails.
  const auto failing = std::find_if(trace.events.begin(), trace.events.end(),
                                    [](const TraceEvent& event) { return event.bytes == 400 * kMiB; });
  trace.events.erase(failing, trace.events.end());
  const int64_t events = std::ssize(trace.events);
  const std::vector<std::string> changes = find_torch_changes(trace, events, 400 * kMiB, 1000 * kMiB);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_TRUE(
      changes[0].starts_with("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
                             "  # "))
      << changes[0];
  EXPECT_TRUE(changes[1].starts_with("torch.cuda.empty_cache() before train.py:14")) << changes[1];
  // With more memory the replay does not fail, and with less nothing helps.
  EXPECT_TRUE(find_torch_changes(trace, events, 400 * kMiB, 4 * kGiB).empty());
  EXPECT_TRUE(find_torch_changes(trace, events, 400 * kMiB, 600 * kMiB).empty());
  EXPECT_TRUE(find_torch_changes(trace, events + 100, 1, kGiB).empty());
}

TEST(TorchAdvice, DoesNotProposeToEmptyACacheThatIsNotTheCause) {
  const Trace trace = steps_of_two_sizes();
  const RunSetup setup = card(find_profile("rtx-3090").overhead_bytes() + 860 * kMiB);
  for (const std::string& change : find_torch_changes(trace, setup)) {
    EXPECT_EQ(change.find("empty_cache"), std::string::npos) << change;
  }
}

TEST(TorchAdvice, CheckpointsKeepWhereTheProgramEmptiesItsCache) {
  const Trace emptied = with_empty_cache(training(8, 50), StepPhase::kForward);
  const Trace recomputed = with_checkpoints(emptied, {"layers.0"});
  ASSERT_EQ(recomputed.device_events.size(), 2u);
  const TraceEvent& next = recomputed.events[static_cast<size_t>(recomputed.device_events[1].position)];
  EXPECT_TRUE(next.allocates);
  EXPECT_EQ(
      recomputed.names[static_cast<size_t>(recomputed.block_facts[static_cast<size_t>(next.block)].module)],
      "layers.0.linear");
}

constexpr SearchWork kFewTraces{.each = kMaxSearchedEvents / 32};

TEST(BatchFit, TheBatchFitsAndTheNextDoesNot) {
  for (const int64_t total : {700 * kMiB, 3 * kGiB, 20 * kGiB}) {
    const Workload program = [](int64_t batch) { return traced(training(6, batch)); };
    const RunSetup setup = card(total);
    BatchSearch search(program, kFewTraces, setup, 64 * kMiB);
    const Fit found = search.largest(1 << 20);
    ASSERT_GT(found.batch, 0);
    EXPECT_TRUE(fits(program(found.batch), setup, 64 * kMiB));
    EXPECT_FALSE(fits(program(found.batch + 1), setup, 64 * kMiB));
    EXPECT_NE(found.stopped_by.find("batch " + std::to_string(found.batch + 1)), std::string::npos);
    const size_t line = found.stopped_by.find(" at model.py:12");
    if (line != std::string::npos) {
      EXPECT_EQ(found.stopped_by.find("model.py:12", line + 5), std::string::npos) << found.stopped_by;
      EXPECT_NE(found.stopped_by.find("), in layers."), std::string::npos) << found.stopped_by;
    }
    EXPECT_LE(search.trials().size(), 6u);
  }
}

TEST(BatchFit, EndsAtTheLargestBatchToTryAndAtOne) {
  const Workload program = [](int64_t batch) { return traced(training(2, batch)); };
  const RunSetup large = card(8 * kGiB), small = card(330 * kMiB);
  EXPECT_EQ(BatchSearch(program, kFewTraces, large, 0).largest(17).batch, 17);
  const Fit none = BatchSearch(program, kFewTraces, small, 0).largest(17);
  EXPECT_EQ(none.batch, 0);
  EXPECT_TRUE(none.stopped_by.starts_with("batch 1: out of memory")) << none.stopped_by;
}

TEST(BatchFit, TriesOnlyWhatReplicasCanShareAndWhatTheWorkloadAllows) {
  const Workload program = [](int64_t batch) {
    EXPECT_EQ(batch % 3, 0);
    if (batch > 30) throw InvalidArgument("the data set has 30 samples");
    return traced(training(2, batch));
  };
  const RunSetup setup = card(8 * kGiB);
  const Fit found = BatchSearch(program, kFewTraces, setup, 0, 3).largest(1 << 20);
  EXPECT_EQ(found.batch, 30);
  EXPECT_EQ(found.stopped_by, "batch 33: the data set has 30 samples");
}

TEST(BatchFit, ABatchThatLacksTheMarginAloneIsNotCalledOutOfMemoryAndNeedsNoChange) {
  const Workload program = [](int64_t batch) { return traced(training(6, batch)); };
  const RunSetup setup = card(kGiB);
  const Fit whole = BatchSearch(program, kFewTraces, setup, 0).largest(1 << 20);
  const Fit found = BatchSearch(program, kFewTraces, setup, 64 * kMiB).largest(1 << 20);
  ASSERT_LT(found.batch, whole.batch);
  EXPECT_EQ(found.stopped_by,
            "batch " + std::to_string(found.batch + 1) + " would leave less than 64.00 MiB free");
  EXPECT_FALSE(found.next);
  EXPECT_TRUE(predict(program(whole.batch), setup).fits);
  EXPECT_FALSE(predict(program(whole.batch + 1), setup).fits);
}

// Its reason is that of a run, in which no process holds the margin.
TEST(BatchFit, ABatchThatFitsNeitherWayHasTheReasonOfARun) {
  const Workload program = [](int64_t batch) { return traced(training(2, 300 * batch)); };
  const RunSetup setup = card(2560 * kMiB);
  const Fit found = BatchSearch(program, kFewTraces, setup, 64 * kMiB).largest(1 << 20);
  ASSERT_EQ(found.batch, 1);
  EXPECT_TRUE(found.stopped_by.starts_with("batch 2: out of memory: ")) << found.stopped_by;
  EXPECT_NE(found.stopped_by.find(", 0 B held by others"), std::string::npos) << found.stopped_by;
}

TEST(PredictionOfATrace, AStrategyThatPlansTheTraceDoesSoWhetherItIsChosenOrNot) {
  const Trace trace = training(4, 25);
  const Traced program = traced(trace);
  const RunSetup packed = card(8 * kGiB, "packed"), torch = card(8 * kGiB);
  EXPECT_EQ(predict(program, packed).reserved_bytes, trace.peak_bytes);
  EXPECT_EQ(outcome(program, packed).reserved_bytes, trace.peak_bytes);
  const std::optional<int64_t> least = least_total_bytes(program, packed);
  ASSERT_TRUE(least.has_value());
  EXPECT_LT(*least, least_total_bytes(program, torch));
}

// If a limit binds, the margin is that of the limit.
TEST(PredictionOfATrace, TheMarginOfALimitIsHowMuchItCouldBeLowerOrLacks) {
  const Trace trace = training(4, 100);
  RunSetup setup = card(8 * kGiB);
  const Prediction free = predict(traced(trace), setup);
  setup.options.limit_bytes = free.reserved_bytes + 64 * kMiB;
  const Prediction roomy = predict(traced(trace), setup);
  EXPECT_TRUE(roomy.fits);
  ASSERT_TRUE(roomy.margin_bytes.has_value());
  EXPECT_GE(*roomy.margin_bytes, 64 * kMiB);
  EXPECT_LT(*roomy.margin_bytes, *free.margin_bytes);

  setup.options.limit_bytes = *setup.options.limit_bytes - *roomy.margin_bytes;
  EXPECT_EQ(predict(traced(trace), setup).margin_bytes, 0);
  setup.options.limit_bytes = *setup.options.limit_bytes - 10 * kMiB;
  const Prediction tight = predict(traced(trace), setup);
  EXPECT_FALSE(tight.fits);
  EXPECT_EQ(tight.margin_bytes, -10 * kMiB);
  EXPECT_GT(tight.total_bytes, 0);
}

TEST(RecordedSetup, TakesDeviceAndStrategyFromTheTrace) {
  Trace trace;
  trace.format = "Headroom trace";
  trace.settings = {{"strategy", "grab-all"}};
  EXPECT_EQ(recorded_strategy(trace), "grab-all");
  EXPECT_EQ(with_recorded_device({}, trace).device, "sim:h200");
  trace.device_events.push_back(
      {.kind = DeviceEvent::Kind::kDevice, .bytes = 24 * kGiB, .others_bytes = kGiB});
  const RuntimeOptions options = with_recorded_device({}, trace);
  EXPECT_EQ(options.device_memory_bytes, 24 * kGiB);
  EXPECT_EQ(options.others_bytes, kGiB);
  trace.settings = {{"strategy", "of another program"}};
  EXPECT_TRUE(recorded_strategy(trace).starts_with("pytorch"));
}

}  // namespace
}  // namespace headroom
