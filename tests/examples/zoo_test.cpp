// Each net of the zoo can be planned, trained and scaled.

#include "examples/models/zoo/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "examples/models/zoo/layers.h"
#include "runtime/app/runtime.h"
#include "runtime/session/session.h"

namespace headroom {
namespace {

class EveryZooNet : public testing::TestWithParam<ZooNet> {};

TEST_P(EveryZooNet, LearnsARepeatedBatch) {
  for (const bool fused : {true, false}) {
    const auto step = make_zoo_step(GetParam(), {.batch = 4, .optimizer = "adam", .fused = fused});
    Runtime runtime({.device = "cpu"});
    Variables variables(step->graph, runtime.device(), runtime.allocator());
    Session session(step->graph, step->targets(), PlanMode::kPacked, variables);
    int32_t next = 0;
    const auto fill = [&](const Value& input) {
      for (int32_t& value : session.input<int32_t>(input))
        value = next++ * 7 % static_cast<int32_t>(step->classes);
    };
    fill(step->labels);
    if (step->input.spec().dtype == DType::kI32) {
      fill(step->input);
    } else {
      for (float& value : session.input<float>(step->input))
        value = static_cast<float>(next++ * 37 % 101) / 101;
    }
    session.input<float>(step->learning_rate)[0] = 2e-3f;
    session.run();
    const float first = session.output<float>(step->loss)[0];
    for (int i = 0; i < 6; ++i) session.run();
    EXPECT_LT(session.output<float>(step->loss)[0], first) << (fused ? "fused" : "library");
  }
}

TEST_P(EveryZooNet, HasPlansWithoutFaults) {
  for (const PlanMode mode : {PlanMode::kDynamic, PlanMode::kPacked, PlanMode::kParallel}) {
    const auto step = make_zoo_step(GetParam(), {.batch = 3});
    const std::vector<int64_t> workspace_bytes(step->graph.nodes().size(), 512);
    const Plan plan = make_plan(step->graph, step->targets(), mode, workspace_bytes);
    EXPECT_EQ(find_fault(step->graph, plan, workspace_bytes), std::nullopt);
  }
}

TEST_P(EveryZooNet, GrowsWithItsWidth) {
  const auto elements = [&](int64_t width) {
    const auto step = make_zoo_step(GetParam(), {.batch = 1, .width = width});
    return std::accumulate(
        step->parameters.begin(), step->parameters.end(), int64_t{0},
        [](int64_t sum, const Value& parameter) { return sum + parameter.shape().elements(); });
  };
  EXPECT_GT(elements(2), 3 * elements(1) / 2);
  EXPECT_THROW(elements(0), InvalidArgument);
  EXPECT_THROW(make_zoo_step(GetParam(), {.batch = 0}), InvalidArgument);
  EXPECT_THROW(make_zoo_step(GetParam(), {.batch = INT64_MAX}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Zoo, EveryZooNet, testing::ValuesIn(zoo_nets()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Upsample, RepeatsEachPixelInBothDirections) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {1, 2, 2, 2}});
  const Value y = upsample(x);
  Runtime runtime({.device = "cpu"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {y}}, PlanMode::kDynamic, variables);
  const std::span<float> input = session.input<float>(x);
  std::iota(input.begin(), input.end(), 0.0f);
  session.run();
  const std::span<const float> output = session.output<float>(y);
  const std::vector<float> expected = {0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3,
                                       4, 5, 4, 5, 6, 7, 6, 7, 4, 5, 4, 5, 6, 7, 6, 7};
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), expected);
}

}  // namespace
}  // namespace headroom
