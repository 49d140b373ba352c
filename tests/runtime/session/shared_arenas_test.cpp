// Sessions that take turns share one arena: the same bits in less memory, and the prediction knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "answers/lower.h"
#include "answers/play.h"
#include "device/host/simulated_gpu.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

struct TurnResult {
  std::vector<float> losses, probabilities;
  uint64_t weights = 0;
  int64_t allocated_peak = 0;
};

// Trains and tests in turn, three times.
TurnResult run_in_turn(PlanMode mode, bool shares) {
  const SmallNet net;
  SimulatedGpu device(find_profile("laptop-2gb"));
  const auto allocator = make_allocator({.name = "direct"}, device);
  const auto kernels = std::make_shared<const Kernels>(net.graph, device, *allocator);
  const Plan training = make_plan(net.graph, net.training(), mode, kernels->workspace_bytes());
  const Plan test = make_plan(net.graph, {{net.probabilities}}, mode, kernels->workspace_bytes());
  const Plan* const plans[] = {&training, &test};

  Variables variables(net.graph, device, *allocator);
  std::unique_ptr<SharedArenas> arenas;
  if (shares) arenas = std::make_unique<SharedArenas>(plans, variables);
  Session train(net.graph, training, kernels, variables, arenas.get());
  Session evaluate(net.graph, test, kernels, variables, arenas.get());
  net.feed(train);
  std::ranges::copy(train.input<float>(net.x), evaluate.input<float>(net.x).begin());
  TurnResult result;
  for (int turn = 0; turn < 3; ++turn) {
    train.run(4);
    result.losses.push_back(train.output<float>(net.loss)[0]);
    evaluate.run();
    const std::vector<float> answers = fetch<float>(evaluate, net.probabilities);
    result.probabilities.insert(result.probabilities.end(), answers.begin(), answers.end());
  }
  result.weights = variables.checksum(net.parameters);
  result.allocated_peak = allocator->statistics().allocated.peak;

  if (shares) {
    const RuntimeOptions options{.device = "sim:laptop-2gb", .strategy = "direct"};
    const Program program{.graph = {std::shared_ptr<const Graph>(), &net.graph},
                          .targets = {},
                          .plans = std::make_shared<const std::vector<Plan>>(std::vector{training, test})};
    const Prediction played = play(lower({&program, 1}, options), setup_of(options));
    EXPECT_EQ(played.front().statistics.allocated.peak, result.allocated_peak) << to_string(mode);
  }
  return result;
}

TEST(SharedArenas, SessionsInTurnHaveTheSameBitsInLessMemory) {
  for (const PlanMode mode : kPlanModes) {
    const TurnResult own = run_in_turn(mode, false), shared = run_in_turn(mode, true);
    EXPECT_EQ(shared.losses, own.losses) << to_string(mode);
    EXPECT_EQ(shared.probabilities, own.probabilities) << to_string(mode);
    EXPECT_EQ(shared.weights, own.weights) << to_string(mode);
    if (has_arena(mode)) {
      EXPECT_LT(shared.allocated_peak, own.allocated_peak) << to_string(mode);
    } else {
      EXPECT_EQ(shared.allocated_peak, own.allocated_peak) << to_string(mode);
    }
  }
}

}  // namespace
}  // namespace headroom
