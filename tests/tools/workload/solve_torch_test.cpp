// Changes of a PyTorch program for a budget: the choice fits it, nothing smaller does, and no more is changed
// than permitted.
#include "tools/workload/solve_torch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answers/predict.h"
#include "base/errors.h"
#include "tests/tools/workload/layered_program.h"
#include "tools/workload/checkpoints.h"
#include "tools/workload/torch_lines.h"

namespace headroom {
namespace {

RunSetup device_with(int64_t memory_bytes) {
  RuntimeOptions options;
  options.device = "rtx-3090";
  options.strategy = "pytorch";
  options.memory_bytes = memory_bytes;
  return with_budget(setup_of(options));
}

constexpr SplitBatch kFree = SplitBatch::kNeeded;

int64_t bytes_as_it_is() {
  return solve_torch(traced_net, device_with(20 * kGiB), kFree, kLayeredBatch).plain.least_memory_bytes;
}

TEST(ProgramSolving, AProgramThatFitsIsLeftAsItIs) {
  const ProgramSolution solution =
      solve_torch(traced_net, device_with(bytes_as_it_is()), kFree, kLayeredBatch);
  EXPECT_TRUE(solution.fits());
  EXPECT_EQ(solution.chosen.changes, ProgramChanges());
  EXPECT_EQ(solution.trials.size(), 1u);
  EXPECT_TRUE(torch_lines(solution, solution.chosen, kLayeredBatch).empty());
}

TEST(ProgramSolving, NoFewerCheckpointsKeepTheBudget) {
  const int64_t memory = bytes_as_it_is() - 3 * 5 * kMiB * kLayeredBatch;
  const SplitBatch allowed = SplitBatch::kNever;
  const ProgramSolution solution = solve_torch(traced_net, device_with(memory), allowed, kLayeredBatch);
  ASSERT_TRUE(solution.fits());
  EXPECT_LE(solution.chosen.prediction.total_bytes, memory);
  EXPECT_EQ(solution.chosen.changes.passes, 1);
  ASSERT_FALSE(solution.chosen.changes.checkpoints.empty());
  EXPECT_EQ(solution.chosen.changes.model, "Net");
  ProgramChanges fewer = solution.chosen.changes;
  fewer.checkpoints.pop_back();
  EXPECT_FALSE(fits(headroom::traced(traced_net(kLayeredBatch, fewer).trace), device_with(memory)));
  const Trace chosen = traced_net(kLayeredBatch, solution.chosen.changes).trace;
  EXPECT_TRUE(fits(headroom::traced(chosen), device_with(memory)));
}

TEST(ProgramSolving, NoChangesAreTracedTwice) {
  std::vector<std::pair<std::optional<int64_t>, ProgramChanges>> traced_changes;
  const TraceProgram trace = [&](std::optional<int64_t> batch, const ProgramChanges& changes) {
    const std::pair request(batch, changes);
    EXPECT_EQ(std::count(traced_changes.begin(), traced_changes.end(), request), 0);
    traced_changes.push_back(request);
    return traced_net(batch, changes);
  };
  solve_torch(trace, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kLayeredBatch), kFree, kLayeredBatch);
  EXPECT_GE(traced_changes.size(), 4u);
}

TEST(ProgramSolving, EachBudgetFromTheLeastOnIsKeptAndNoneBelow) {
  const ProgramSolution least = solve_torch(traced_net, device_with(350 * kMiB), kFree, kLayeredBatch);
  ASSERT_FALSE(least.fits());
  ASSERT_GT(least.chosen.least_memory_bytes, 0);
  for (int64_t more = 0; more <= 400 * kMiB; more += 24 * kMiB) {
    const int64_t memory = least.chosen.least_memory_bytes + more;
    EXPECT_TRUE(solve_torch(traced_net, device_with(memory), kFree, kLayeredBatch).fits()) << memory;
  }
  const ProgramSolution below =
      solve_torch(traced_net, device_with(least.chosen.least_memory_bytes - 2 * kMiB), kFree, kLayeredBatch);
  EXPECT_FALSE(below.fits());
  EXPECT_EQ(below.chosen.least_memory_bytes, least.chosen.least_memory_bytes);
}

TEST(ProgramSolving, TheBatchIsSplitAsFarAsItMayBe) {
  const int64_t memory = bytes_as_it_is() - 3 * 5 * kMiB * kLayeredBatch;
  SplitBatch allowed = kFree;
  const ProgramSolution needed = solve_torch(traced_net, device_with(memory), allowed, kLayeredBatch);
  EXPECT_EQ(needed.chosen.changes.passes, 2) << "two parts cost less, and only round in another order";
  EXPECT_FALSE(needed.split);
  const TraceProgram normalizing = [](std::optional<int64_t> batch, const ProgramChanges& changes) {
    TracedProgram program = traced_net(batch, changes);
    program.normalizes_batches = true;
    return program;
  };
  const ProgramSolution exact = solve_torch(normalizing, device_with(memory), allowed, kLayeredBatch);
  EXPECT_EQ(exact.chosen.changes.passes, 1) << "statistics of a part are other results";
  ASSERT_TRUE(exact.split);
  EXPECT_EQ(exact.split->changes.passes, 2);
  EXPECT_LT(exact.split->us, exact.chosen.us);
  allowed = SplitBatch::kCheaper;
  EXPECT_EQ(solve_torch(normalizing, device_with(memory), allowed, kLayeredBatch).chosen.changes.passes, 2);
  allowed = SplitBatch::kNever;
  const int64_t little =
      solve_torch(traced_net, device_with(350 * kMiB), allowed, kLayeredBatch).chosen.least_memory_bytes;
  EXPECT_GT(little,
            solve_torch(traced_net, device_with(350 * kMiB), kFree, kLayeredBatch).chosen.least_memory_bytes);
  for (const ProgramTrial& trial :
       solve_torch(traced_net, device_with(little - 2 * kMiB), allowed, kLayeredBatch).trials) {
    EXPECT_EQ(trial.changes.passes, 1);
  }
}

TEST(ProgramSolving, AChangeThatCannotBeTracedIsNotChosen) {
  const TraceProgram strict = [](std::optional<int64_t> batch, const ProgramChanges& changes) {
    if (changes.fused || changes.offload) throw InvalidArgument("this optimizer has no such thing");
    return traced_net(batch, changes);
  };
  const ProgramSolution solution =
      solve_torch(strict, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kLayeredBatch), kFree, kLayeredBatch);
  ASSERT_TRUE(solution.fits());
  EXPECT_FALSE(solution.chosen.changes.fused);
  EXPECT_THROW(solve_torch([](auto, auto) -> TracedProgram { throw InvalidArgument("no program"); },
                           device_with(kGiB), kFree, kLayeredBatch),
               InvalidArgument);
}

TEST(ProgramSolving, AFusedOptimizerIsNotProposedWhereItIsOn) {
  const TraceProgram fused = [](std::optional<int64_t> batch, ProgramChanges changes) {
    changes.fused = true;
    return traced_net(batch, changes);
  };
  const ProgramSolution solution = solve_torch(fused, device_with(350 * kMiB), kFree, kLayeredBatch);
  EXPECT_GT(solution.trials.size(), 4u);
  for (const ProgramTrial& trial : solution.trials) {
    const bool is_the_test = trial.changes.checkpoints.empty() && trial.changes.passes == 1;
    EXPECT_FALSE(trial.changes.fused && !is_the_test) << describe(trial);
  }
}

TEST(ProgramSolving, AFusedOptimizerThatIsOnIsSeenWhereSegmentsThatGrowRoundLess) {
  const TraceProgram fused = [](std::optional<int64_t>, const ProgramChanges&) {
    TracedProgram program{.us_per_step = 100};
    TraceBuilder builder("train.py:make_step", "Headroom");
    builder.add_setting("framework", "PyTorch 2.11");
    builder.mark(1, StepPhase::kForward, 0);
    builder.allocate(1, 100 * kMiB);
    builder.free(1);
    // The first takes a part of that segment; the second a segment of 62 MiB, which is not split.
    for (const uint64_t block : {2, 3}) builder.allocate(block, 123 * kMiB / 2);
    program.trace = builder.take();
    return program;
  };
  const int64_t needed =
      solve_torch(fused, device_with(20 * kGiB), kFree, std::nullopt).plain.least_memory_bytes;
  const ProgramSolution solution = solve_torch(fused, device_with(needed - 80 * kMiB), kFree, std::nullopt);
  ASSERT_GT(solution.trials.size(), 3u);
  ASSERT_NE(solution.trials[0].prediction.allocated_bytes, solution.trials[1].prediction.allocated_bytes);
  for (const ProgramTrial& trial : solution.trials)
    EXPECT_FALSE(trial.changes.fused && trial.changes.offload);
}

TEST(ProgramSolving, ALossInPartsLeadsWhereLogitsAreTheMost) {
  const TraceProgram large = [](std::optional<int64_t> batch, const ProgramChanges& changes) {
    return net(batch.value_or(kLayeredBatch), changes, 100 * kMiB);
  };
  const RunSetup setup = device_with(bytes_as_it_is() + 400 * kMiB);
  const ProgramSolution solution = solve_torch(large, setup, kFree, std::nullopt);
  ASSERT_TRUE(solution.fits());
  EXPECT_EQ(solution.chosen.changes.loss_parts, 8);
  EXPECT_TRUE(solution.chosen.changes.checkpoints.empty());
  EXPECT_NE(describe(solution.chosen).find("the loss in 8 parts"), std::string::npos);
  const std::vector<std::string> lines = torch_lines(solution, solution.chosen, kLayeredBatch);
  EXPECT_NE(std::find(lines.begin(), lines.end(),
                      "    return F.cross_entropy(net.head(x), targets, reduction=\"sum\")"),
            lines.end());
  const SplitBatch never = SplitBatch::kNever;
  for (const ProgramTrial& trial : solve_torch(large, setup, never, std::nullopt).trials)
    EXPECT_EQ(trial.changes.loss_parts, 1);
}

TEST(ProgramSolving, AsItIsAProgramNeedsWhatIsPredicted) {
  for (const int64_t memory : {20 * kGiB, 350 * kMiB}) {
    const RunSetup setup = device_with(memory);
    const ProgramSolution solution = solve_torch(traced_net, setup, kFree, kLayeredBatch);
    EXPECT_FALSE(solution.plain.has_expandable_segments);
    const Trace trace = traced_net(kLayeredBatch, {}).trace;
    const Prediction predicted = predict(traced_here(trace), setup);
    EXPECT_EQ(solution.plain.least_memory_bytes, setup.device.total_bytes - *predicted.margin_bytes);
    EXPECT_EQ(solution.plain.prediction.total_bytes, predicted.total_bytes);
  }
}

TEST(ProgramSolving, ARecordingIsGivenCheckpointsAlone) {
  const ProgramSolution solution =
      solve_recording(traced_net, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kLayeredBatch));
  ASSERT_TRUE(solution.fits());
  for (const ProgramTrial& trial : solution.trials) {
    EXPECT_EQ(trial.changes.passes, 1);
    EXPECT_FALSE(trial.changes.fused || trial.changes.offload || trial.changes.uncached);
  }
}

TEST(CheckpointOrder, LeavesOutListsOfBlocksAndWhatKeepsMostOfAll) {
  const TracedProgram program = net(kLayeredBatch, {});
  const std::vector<std::string> order = checkpoint_order(program.trace, program.modules);
  ASSERT_EQ(order.size(), static_cast<size_t>(kLayers));
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(order[static_cast<size_t>(layer)], "layers." + std::to_string(layer));
  }
}

TEST(CheckpointOrder, AModuleInsideOfAnotherIsNoCheckpointOfItsOwn) {
  const std::vector<std::string> order = {"h.0.mlp", "h.1.mlp", "h.0", "h.10"};
  EXPECT_EQ(first_checkpoints(order, 2), (std::vector<std::string>{"h.0.mlp", "h.1.mlp"}));
  EXPECT_EQ(first_checkpoints(order, 4), (std::vector<std::string>{"h.1.mlp", "h.0", "h.10"}));
}

TEST(CheckpointOrder, TheFirstNumberOfAPathIsThatOfItsPattern) {
  EXPECT_EQ(pattern_of("transformer.h.3.mlp.0").first, "transformer.h.*.mlp.0");
  EXPECT_EQ(pattern_of("transformer.h.3.mlp.0").second, 3);
  EXPECT_EQ(pattern_of("12").first, "*");
  EXPECT_EQ(pattern_of("head").second, -1);
}

TEST(TorchLines, NameTheModulesAsTheProgramDoes) {
  const ProgramSolution solution{.model = "Net", .name = "net"};
  ProgramTrial trial;
  trial.changes.checkpoints = {"h.0", "h.1", "h.2", "d.0.mlp", "d.4.mlp", "stem", "layer1.2"};
  const std::vector<std::string> lines = torch_lines(solution, trial, 0);
  const auto has = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  EXPECT_TRUE(has("for block in net.h[:3]:"));
  EXPECT_TRUE(has("    block.forward = partial(checkpoint, block.forward, use_reentrant=False)"));
  EXPECT_TRUE(has("for block in [net.d[i] for i in (0, 4)]:"));
  EXPECT_TRUE(has("    block.mlp.forward = partial(checkpoint, block.mlp.forward, use_reentrant=False)"));
  EXPECT_TRUE(has("net.stem.forward = partial(checkpoint, net.stem.forward, use_reentrant=False)"));
  EXPECT_TRUE(has("net.layer1[2].forward = partial(checkpoint, net.layer1[2].forward, use_reentrant=False)"));
}

TEST(TorchLines, LabelsOfTriesTellThemApart) {
  const SplitBatch allowed = SplitBatch::kNever;
  for (const int64_t less : {1, 3, 5, 7}) {
    const ProgramSolution solution = solve_torch(
        traced_net, device_with(bytes_as_it_is() - less * 5 * kMiB * kLayeredBatch), allowed, kLayeredBatch);
    std::vector<std::string> labels = describe_apart(solution.trials);
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end()) << *labels.begin();
  }
  std::vector<ProgramTrial> trials(3);
  trials[0].changes.checkpoints = {"h.0", "h.1", "h.3.mlp", "head"};
  trials[1].changes.checkpoints = {"h.0", "h.2", "h.3", "h.4"};
  trials[2].changes.checkpoints = {"h.0"};
  EXPECT_EQ(describe_apart(trials), (std::vector<std::string>{"4 checkpoints (h.0-1, h.3.mlp, head)",
                                                              "4 checkpoints (h.0,2-4)", "1 checkpoint"}));
}

TEST(TorchLines, SayTheSizeOfThePartsOfABatch) {
  ProgramTrial trial;
  trial.changes.passes = 4;
  const std::vector<std::string> lines = torch_lines({}, trial, 32);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front(), "# batches of 8 instead of 32, and in each step");
  EXPECT_EQ(describe(trial), "4 parts of the batch");
}

}  // namespace
}  // namespace headroom
