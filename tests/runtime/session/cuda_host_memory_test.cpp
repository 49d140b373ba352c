// A step on a real GPU that keeps values in page-locked host memory between their uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "runtime/app/place.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/host_state.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/frontier.h"
#include "runtime/session/link_timer.h"
#include "tests/require_cuda.h"
#include "tests/runtime/session/harness.h"

namespace headroom {
namespace {

constexpr int64_t kHostOfTheGpu = int64_t{1} << 60;

struct RunOnTheGpu {
  std::vector<float> losses;
  uint64_t checksum = 0;
  bool operator==(const RunOnTheGpu&) const = default;
};

// A step of layers that keeps `percent` of its memory, with nodes and copies that are planned to take equally
// long, so that most dropped values go to the host.
RunOnTheGpu run_on_the_gpu(int percent, PlanMode mode, bool puts_states_on_host = false) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {1024, 512}});
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  std::vector<Value> weights;
  Value y = x;
  for (int i = 0; i < 12; ++i) {
    const NameScope scope(graph, "layer" + std::to_string(i));
    weights.push_back(graph.variable("w", {DType::kF32, {512, 512}}, glorot_uniform({512, 512}, 1)));
    y = gelu(matmul(y, weights.back()));
  }
  const Value loss = mean(y);
  add_updates(Adam{}, weights, gradients(loss, weights), rate, step);
  const Targets targets{{loss}, true};

  Runtime runtime({.device = "cuda", .strategy = "direct"});
  const DeviceSet devices = place(graph, runtime);
  const std::vector<int> states = find_movable_states(graph, targets.fetches);
  if (puts_states_on_host) put_on_host(graph, states);
  int64_t state_bytes = 0;
  for (const int64_t bytes : host_state_bytes(graph)) state_bytes += bytes;
  EXPECT_EQ(state_bytes > 0, puts_states_on_host);
  auto kernels = std::make_shared<const Kernels>(graph, devices);
  const int64_t whole = make_plan(graph, targets, PlanMode::kPacked, kernels->workspace_bytes()).peak_bytes;
  if (percent < 100) {
    const std::vector<int64_t> workspace(kernels->workspace_bytes().begin(),
                                         kernels->workspace_bytes().end());
    const std::vector<double> us(graph.nodes().size(), 10);
    const HostLink host{.bytes_per_us = 0.2e6, .latency_us = 1, .max_bytes = kHostOfTheGpu};
    const StepPoint solution = Frontier(graph, targets, {workspace, us}, host).solve(whole * percent / 100);
    EXPECT_GT(solution.schedule.stores(), 0);
    apply(solution.schedule, graph);
    kernels = std::make_shared<const Kernels>(graph, devices);
  }
  Plan plan = make_plan(graph, targets, mode, kernels->workspace_bytes());
  EXPECT_EQ(
      find_fault(graph, plan,
                 std::vector<int64_t>(kernels->workspace_bytes().begin(), kernels->workspace_bytes().end())),
      std::nullopt);
  const int64_t arena_bytes = plan.peak_bytes, host_bytes = host_bytes_of(plan);
  EXPECT_EQ(host_bytes > 0, percent < 100);
  Variables variables(graph, devices);
  const int64_t before = devices.front().allocator->statistics().allocated.current;
  Session session(graph, std::move(plan), kernels, variables);
  EXPECT_EQ(session.not_captured_because(), "");
  if (has_arena(mode)) {
    EXPECT_EQ(devices.front().allocator->statistics().allocated.current - before, arena_bytes);
    EXPECT_EQ(devices.find(kHostPlace).allocator->statistics().allocated.current, host_bytes + state_bytes);
  }
  RunOnTheGpu trained;
  for (const int64_t steps : {1, 1, 1, 40}) {
    const std::vector<float> values = random_floats(x.shape().elements(), static_cast<uint64_t>(steps));
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    session.input<float>(rate)[0] = 1e-3f;
    session.run(steps);
    trained.losses.push_back(session.output<float>(loss)[0]);
  }
  if (has_arena(mode)) {
    EXPECT_EQ(devices.front().allocator->statistics().allocated.peak - before, arena_bytes);
  }
  for (const int id : states) weights.push_back({&graph, id});
  trained.checksum = variables.checksum(weights);
  return trained;
}

using CudaHostMemoryTest = CudaTest;

TEST_F(CudaHostMemoryTest, AStepThatUsesTheHostGivesTheSameBitsInThePlannedMemory) {
  const RunOnTheGpu expected = run_on_the_gpu(100, PlanMode::kPacked);
  for (const int percent : {80, 60, 40})
    EXPECT_EQ(run_on_the_gpu(percent, PlanMode::kPacked), expected) << percent;
  for (const PlanMode mode : kPlanModes) EXPECT_EQ(run_on_the_gpu(50, mode), expected) << to_string(mode);
}

TEST_F(CudaHostMemoryTest, StatesOfTheOptimizerOnTheHostGiveTheSameBits) {
  const RunOnTheGpu expected = run_on_the_gpu(100, PlanMode::kPacked);
  for (const PlanMode mode : kPlanModes)
    EXPECT_EQ(run_on_the_gpu(100, mode, true), expected) << to_string(mode);
  EXPECT_EQ(run_on_the_gpu(60, PlanMode::kPacked, true), expected);
}

TEST_F(CudaHostMemoryTest, TheLinkIsMeasuredWithinTheMemoryThatIsAllowed) {
  Runtime runtime({.device = "cuda"});
  Device& gpu = runtime.device();
  gpu.initialize();
  const int64_t before = gpu.memory().info().process;
  EXPECT_EQ(measure_link_bytes_per_us(gpu, before), std::nullopt);
  const std::optional<double> speed = measure_link_bytes_per_us(gpu, kHostOfTheGpu);
  ASSERT_TRUE(speed.has_value());
  EXPECT_GT(*speed, 1e3) << "slower than any PCI Express that carries a GPU";
  EXPECT_LT(*speed, 1e6);
  EXPECT_LE(gpu.memory().info().process, before + 2 * kMiB) << "more than the driver keeps for streams";
}

}  // namespace
}  // namespace headroom
