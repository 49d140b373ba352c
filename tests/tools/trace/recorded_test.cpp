// Reads the tracer's output for two small trainings (recorded/train.py) as every command does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trace/read_trace.h"

namespace headroom {
namespace {

Trace read_recorded(const std::string& name) {
  std::vector<Trace> traces = read_traces(HEADROOM_SOURCE_DIR "/tests/tools/trace/recorded/" + name);
  EXPECT_EQ(traces.size(), 1u);
  return traces.front();
}

std::string name_of(const Trace& trace, int32_t index) {
  return trace.names[static_cast<size_t>(index)];
}

class RecordedProgram : public testing::TestWithParam<const char*> {};

TEST_P(RecordedProgram, HasBothStepsWithTheirPhasesInOrder) {
  const Trace trace = read_recorded(GetParam());
  for (int32_t step = 1; step <= 2; ++step) {
    std::vector<StepPhase> phases;
    for (const TraceMark& mark : trace.marks) {
      if (mark.step == step) phases.push_back(mark.phase);
    }
    const auto backward = std::find(phases.begin(), phases.end(), StepPhase::kBackward);
    ASSERT_NE(backward, phases.end());
    EXPECT_EQ(phases.front(), StepPhase::kForward);
    EXPECT_NE(std::find(backward, phases.end(), StepPhase::kOptimizer), phases.end());
  }
}

TEST_P(RecordedProgram, BlocksHaveEveryCategoryAndTheUsersLine) {
  const Trace trace = read_recorded(GetParam());
  std::set<MemoryCategory> categories;
  for (const TraceBlock& block : trace.block_facts) {
    categories.insert(block.category);
    EXPECT_EQ(name_of(trace, block.source).find("train.py:"), 0u);
    EXPECT_NE(name_of(trace, block.stack).find("/home/me/train.py:"), std::string::npos);
  }
  for (const MemoryCategory category :
       {MemoryCategory::kWeights, MemoryCategory::kGradients, MemoryCategory::kOptimizerState,
        MemoryCategory::kActivations, MemoryCategory::kInputs, MemoryCategory::kWorkspace,
        MemoryCategory::kLibrary}) {
    EXPECT_TRUE(categories.contains(category)) << static_cast<int>(category);
  }
}

// AdamW keeps two tensors of each parameter's size, and each parameter has a gradient of its size.
TEST_P(RecordedProgram, GradientsAndOptimizerStateMatchTheWeights) {
  const Trace trace = read_recorded(GetParam());
  int64_t weights = 0, state = 0;
  for (const TraceEvent& event : trace.events) {
    if (!event.allocates) continue;
    const MemoryCategory category = trace.block_facts[static_cast<size_t>(event.block)].category;
    const std::string tensor = name_of(trace, event.tag);
    if (category == MemoryCategory::kWeights && !tensor.ends_with("running_mean") &&
        !tensor.ends_with("running_var") && !tensor.ends_with("num_batches_tracked")) {
      weights += event.bytes;
    }
    if (category == MemoryCategory::kOptimizerState) state += event.bytes;
  }
  EXPECT_GT(weights, 0);
  EXPECT_EQ(state, 2 * weights);
}

INSTANTIATE_TEST_SUITE_P(OfTwo, RecordedProgram, testing::Values("cnn.trace.gz", "transformer.trace.gz"));

TEST(RecordedTransformer, BlocksHaveTheirModules) {
  const Trace trace = read_recorded("transformer.trace.gz");
  std::set<std::string> modules;
  for (const TraceBlock& block : trace.block_facts) modules.insert(name_of(trace, block.module));
  for (const char* module : {"embed", "blocks.0.qkv", "blocks.1.mlp.1", "head"}) {
    EXPECT_TRUE(modules.contains(module)) << module;
  }
}

// A GPU of capability 8.6 gets 8.125 MiB for each of two cuBLAS handles, and cuBLASLt 1 MiB.
TEST(RecordedTransformer, LibrariesTakeWhatTheGpuAsksFor) {
  const Trace trace = read_recorded("transformer.trace.gz");
  int64_t bytes = 0;
  for (const TraceEvent& event : trace.events) {
    if (!event.allocates) continue;
    if (trace.block_facts[static_cast<size_t>(event.block)].category == MemoryCategory::kLibrary) {
      bytes += event.bytes;
    }
  }
  EXPECT_EQ(bytes, 2 * (8320 << 10) + (1 << 20));
}

}  // namespace
}  // namespace headroom
