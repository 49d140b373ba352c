// Changes of a PyTorch program for a budget: what is chosen keeps it, nothing smaller does, and no more is
// changed than may be.
#include "tools/workload/program_solving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/errors.h"
#include "tools/workload/checkpoint_order.h"
#include "tools/workload/torch_lines.h"
#include "trace/trace_builder.h"

namespace headroom {
namespace {

constexpr int kLayers = 8;
constexpr int64_t kBatch = 8;
constexpr double kLayerUs = 100;

// A net of eight layers, each a product and a relu that keep 5 MiB a sample, and an optimizer that takes as
// much as the weights for a moment unless it is fused.
TracedProgram net(int64_t batch, const ProgramChanges& changes) {
  const int64_t kept = 5 * kMiB * batch, weights = 40 * kMiB;
  const auto is_checkpoint = [&](const std::string& path) {
    return std::find(changes.checkpoints.begin(), changes.checkpoints.end(), path) !=
           changes.checkpoints.end();
  };
  TracedProgram program{.model = "Net", .name = "net"};
  TraceBuilder builder("train.py:make_step", "Headroom");
  builder.add_setting("framework", "PyTorch 2.11");
  uint64_t next = 1;
  builder.mark(0, StepPhase::kSetup, 0);
  builder.allocate(next++, weights, {.category = MemoryCategory::kWeights});
  for (int step = 1; step <= 2; ++step) {
    for (int64_t pass = 0; pass < changes.passes; ++pass) {
      builder.mark(step, StepPhase::kForward, 0);
      std::vector<std::vector<uint64_t>> live(kLayers);
      for (size_t layer = 0; layer < kLayers; ++layer) {
        const std::string module = "layers." + std::to_string(layer);
        const auto allocate = [&](const char* part) {
          builder.allocate(next, kept, {.module = module + part, .category = MemoryCategory::kActivations});
          live[layer].push_back(next++);
        };
        allocate(".product");
        allocate(".relu");
        if (is_checkpoint(module)) {
          builder.free(live[layer].front());
          live[layer].erase(live[layer].begin());
        }
      }
      builder.mark(step, StepPhase::kBackward, 0);
      for (size_t layer = kLayers; layer-- > 0;) {
        if (live[layer].size() == 1) {
          builder.allocate(next, kept);
          live[layer].push_back(next++);
        }
        for (const uint64_t block : live[layer]) builder.free(block);
      }
    }
    builder.mark(step, StepPhase::kOptimizer, 0);
    if (!changes.fused) {
      builder.allocate(next, weights);
      builder.free(next++);
    }
  }
  program.trace = builder.take();
  program.modules.push_back({"layers", 0, kLayers});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string module = "layers." + std::to_string(layer);
    program.modules.push_back({module, 0, 2});
    program.modules.push_back({module + ".product", 0.9 * kLayerUs, 0});
    program.modules.push_back({module + ".relu", 0.1 * kLayerUs, 0});
  }
  program.us_per_step = 3 * kLayers * kLayerUs + kLayerUs * static_cast<double>(changes.checkpoints.size()) +
                        20 * static_cast<double>(changes.passes);
  return program;
}

TracedProgram traced(std::optional<int64_t> batch, const ProgramChanges& changes) {
  return net(batch.value_or(kBatch), changes);
}

RunSetup device_with(int64_t memory_bytes) {
  RuntimeOptions options;
  options.device = "rtx-3090";
  options.strategy = "pytorch";
  return with_budget(setup_of(options), memory_bytes);
}

const ProgramFreedom kFree = {.batch = kBatch};

int64_t bytes_as_it_is() {
  return solve_program(traced, device_with(20 * kGiB), kFree).plain.least_memory_bytes;
}

TEST(ProgramSolving, AProgramThatFitsIsLeftAsItIs) {
  const ProgramSolution solution = solve_program(traced, device_with(bytes_as_it_is()), kFree);
  EXPECT_TRUE(solution.keeps());
  EXPECT_EQ(solution.chosen.changes, ProgramChanges());
  EXPECT_EQ(solution.trials.size(), 1u);
  EXPECT_TRUE(torch_lines(solution, solution.chosen, kBatch).empty());
}

TEST(ProgramSolving, NoFewerCheckpointsKeepTheBudget) {
  const int64_t memory = bytes_as_it_is() - 3 * 5 * kMiB * kBatch;
  const ProgramSolution solution = solve_program(traced, device_with(memory), kFree);
  ASSERT_TRUE(solution.keeps());
  EXPECT_LE(solution.chosen.prediction.total_bytes, memory);
  EXPECT_EQ(solution.chosen.changes.passes, 1);
  ASSERT_FALSE(solution.chosen.changes.checkpoints.empty());
  EXPECT_EQ(solution.chosen.changes.model, "Net");
  ProgramChanges fewer = solution.chosen.changes;
  fewer.checkpoints.pop_back();
  EXPECT_FALSE(fits(headroom::traced(traced(kBatch, fewer).trace), device_with(memory)));
  const Trace chosen = traced(kBatch, solution.chosen.changes).trace;
  EXPECT_TRUE(fits(headroom::traced(chosen), device_with(memory)));
}

TEST(ProgramSolving, NoChangesAreTracedTwice) {
  std::vector<std::pair<std::optional<int64_t>, ProgramChanges>> traced_changes;
  const TraceProgram trace = [&](std::optional<int64_t> batch, const ProgramChanges& changes) {
    const std::pair request(batch, changes);
    EXPECT_EQ(std::count(traced_changes.begin(), traced_changes.end(), request), 0);
    traced_changes.push_back(request);
    return traced(batch, changes);
  };
  solve_program(trace, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kBatch), kFree);
  EXPECT_GE(traced_changes.size(), 4u);
}

TEST(ProgramSolving, EachBudgetFromTheLeastOnIsKeptAndNoneBelow) {
  const ProgramSolution least = solve_program(traced, device_with(350 * kMiB), kFree);
  ASSERT_FALSE(least.keeps());
  ASSERT_GT(least.chosen.least_memory_bytes, 0);
  for (int64_t more = 0; more <= 400 * kMiB; more += 24 * kMiB) {
    const int64_t memory = least.chosen.least_memory_bytes + more;
    EXPECT_TRUE(solve_program(traced, device_with(memory), kFree).keeps()) << memory;
  }
  const ProgramSolution below =
      solve_program(traced, device_with(least.chosen.least_memory_bytes - 2 * kMiB), kFree);
  EXPECT_FALSE(below.keeps());
  EXPECT_EQ(below.chosen.least_memory_bytes, least.chosen.least_memory_bytes);
}

TEST(ProgramSolving, TheBatchIsSplitAsFarAsItMayBe) {
  const int64_t memory = bytes_as_it_is() - 3 * 5 * kMiB * kBatch;
  ProgramFreedom freedom = kFree;
  const ProgramSolution needed = solve_program(traced, device_with(memory), freedom);
  EXPECT_EQ(needed.chosen.changes.passes, 1);
  ASSERT_TRUE(needed.split);
  EXPECT_EQ(needed.split->changes.passes, 2);
  EXPECT_LT(needed.split->us, needed.chosen.us);
  freedom.split_batch = SplitBatch::kCheaper;
  EXPECT_EQ(solve_program(traced, device_with(memory), freedom).chosen.changes.passes, 2);
  freedom.split_batch = SplitBatch::kNever;
  const int64_t little = solve_program(traced, device_with(350 * kMiB), freedom).chosen.least_memory_bytes;
  EXPECT_GT(little, solve_program(traced, device_with(350 * kMiB), kFree).chosen.least_memory_bytes);
  for (const ProgramTrial& trial : solve_program(traced, device_with(little - 2 * kMiB), freedom).trials) {
    EXPECT_EQ(trial.changes.passes, 1);
  }
}

TEST(ProgramSolving, AChangeThatCannotBeTracedIsNotChosen) {
  const TraceProgram strict = [](std::optional<int64_t> batch, const ProgramChanges& changes) {
    if (changes.fused || changes.offload) throw InvalidArgument("this optimizer has no such thing");
    return traced(batch, changes);
  };
  const ProgramSolution solution =
      solve_program(strict, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kBatch), kFree);
  ASSERT_TRUE(solution.keeps());
  EXPECT_FALSE(solution.chosen.changes.fused);
  EXPECT_THROW(solve_program([](auto, auto) -> TracedProgram { throw InvalidArgument("no program"); },
                             device_with(kGiB), kFree),
               InvalidArgument);
}

TEST(ProgramSolving, ARecordingIsGivenCheckpointsAlone) {
  const ProgramFreedom freedom{.is_recording = true};
  const ProgramSolution solution =
      solve_program(traced, device_with(bytes_as_it_is() - 3 * 5 * kMiB * kBatch), freedom);
  ASSERT_TRUE(solution.keeps());
  for (const ProgramTrial& trial : solution.trials) {
    EXPECT_EQ(trial.changes.passes, 1);
    EXPECT_FALSE(trial.changes.fused || trial.changes.offload || trial.changes.uncached);
  }
}

TEST(CheckpointOrder, LeavesOutListsOfBlocksAndWhatKeepsMostOfAll) {
  const TracedProgram program = net(kBatch, {});
  const std::vector<CheckpointCandidate> order = checkpoint_order(program.trace, program.modules);
  ASSERT_EQ(order.size(), static_cast<size_t>(kLayers));
  for (int layer = 0; layer < kLayers; ++layer) {
    const CheckpointCandidate& candidate = order[static_cast<size_t>(layer)];
    EXPECT_EQ(candidate.path, "layers." + std::to_string(layer));
    EXPECT_EQ(candidate.saved_bytes, 5 * kMiB * kBatch);
    EXPECT_DOUBLE_EQ(candidate.us, kLayerUs);
  }
}

TEST(CheckpointOrder, AModuleInsideOfAnotherIsNoCheckpointOfItsOwn) {
  const std::vector<CheckpointCandidate> order = {{"h.0.mlp"}, {"h.1.mlp"}, {"h.0"}, {"h.10"}};
  EXPECT_EQ(first_checkpoints(order, 2), (std::vector<std::string>{"h.0.mlp", "h.1.mlp"}));
  EXPECT_EQ(first_checkpoints(order, 4), (std::vector<std::string>{"h.1.mlp", "h.0", "h.10"}));
}

TEST(CheckpointOrder, TheFirstNumberOfAPathIsThatOfItsPattern) {
  EXPECT_EQ(pattern_of("transformer.h.3.mlp.0").text, "transformer.h.*.mlp.0");
  EXPECT_EQ(pattern_of("transformer.h.3.mlp.0").number, 3);
  EXPECT_EQ(pattern_of("12").text, "*");
  EXPECT_EQ(pattern_of("head").number, -1);
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
  ProgramFreedom freedom = kFree;
  freedom.split_batch = SplitBatch::kNever;
  for (const int64_t less : {1, 3, 5, 7}) {
    const ProgramSolution solution =
        solve_program(traced, device_with(bytes_as_it_is() - less * 5 * kMiB * kBatch), freedom);
    std::vector<std::string> labels = describe_apart(solution.trials);
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end()) << *labels.begin();
  }
  std::vector<ProgramTrial> trials(3);
  trials[0].changes.checkpoints = {"h.0", "h.1", "h.3.mlp", "head"};
  trials[1].changes.checkpoints = {"h.0", "h.2", "h.3", "h.4"};
  trials[2].changes.checkpoints = {"h.0"};
  EXPECT_EQ(describe_apart(trials),
            (std::vector<std::string>{"4 checkpoints (h.0-1, h.3.mlp, head)", "4 checkpoints (h.0,2-4)",
                                      "1 checkpoint"}));
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
