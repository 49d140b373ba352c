#include "runtime/plan/plan.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/errors.h"
#include "runtime/graph/fuse.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

TEST(Plan, HasNoFaultInAnyMode) {
  for (bool fused : {false, true}) {
    SmallNet net;
    if (fused) {
      EXPECT_EQ(fuse(net.graph), 1);
    }
    for (int64_t bytes : {0, 1000}) {
      const std::vector<int64_t> workspace = workspaces(net.graph, bytes);
      for (PlanMode mode : kPlanModes) {
        for (const Targets& targets : {net.training(), Targets{{net.probabilities}, false}}) {
          const Plan plan = make_plan(net.graph, targets, mode, workspace);
          EXPECT_EQ(find_fault(net.graph, plan, workspace), std::nullopt) << to_string(mode) << " " << bytes;
        }
      }
    }
  }
}

TEST(Plan, RunsOnlyWhatTheTargetsNeed) {
  SmallNet net;
  const Plan plan = make_plan(net.graph, {{net.hidden}, false}, PlanMode::kDynamic, workspaces(net.graph, 0));
  std::vector<std::string_view> ran;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kRun) ran.push_back(op_name(net.graph.node(step.id).op));
  }
  EXPECT_EQ(ran, (std::vector<std::string_view>{"conv2d", "add", "relu", "max_pool"}));
}

TEST(Plan, WorksInPlaceOnlyWhereAnInputDies) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {1000}});
  const Value a = relu(x), b = sigmoid(a), c = add(a, b);  // a lives on past b
  const Plan plan = make_plan(graph, {{c}, false}, PlanMode::kDynamic, workspaces(graph, 0));
  const auto buffer = [&](Value v) { return plan.buffer_of_value[static_cast<size_t>(v.id)]; };
  EXPECT_EQ(buffer(a), buffer(x));
  EXPECT_NE(buffer(b), buffer(a));
  EXPECT_EQ(buffer(c), buffer(a));
  EXPECT_EQ(plan.peak_bytes, 2 * 4096);
}

// An op of several results computes the second from its operands after the first.
TEST(Plan, NoResultTakesOverWhatAnotherOneIsMadeOf) {
  for (const PlanMode mode : kPlanModes) {
    Graph graph;
    const Value x = graph.input("x", {DType::kF32, {1000}});
    const Value a = relu(x), view = graph.add(Reshape{{1000}}, std::vector<Value>{a})[0];
    const std::vector<Value> sums = graph.add(AddPairs{}, std::vector<Value>{a, view, sigmoid(x), tanh(x)});
    const Targets targets{sums, false};
    Plan plan = make_plan(graph, targets, mode, workspaces(graph, 0));
    EXPECT_EQ(find_fault(graph, plan, workspaces(graph, 0)), std::nullopt);
    const auto buffer = [&](Value v) -> int& { return plan.buffer_of_value[static_cast<size_t>(v.id)]; };
    EXPECT_NE(buffer(sums[0]), buffer(a));
    EXPECT_NE(buffer(sums[1]), buffer(a));
    buffer(sums[0]) = buffer(a);
    EXPECT_NE(find_fault(graph, plan, workspaces(graph, 0)), std::nullopt) << "not found";
  }
}

TEST(Plan, NeverCopiesAReshape) {
  Graph graph;
  const Value w = graph.variable("w", {DType::kF32, {4, 6}}, ones());
  const Value flat = reshape(w, {24});
  const Value y = relu(flat);
  const Plan plan = make_plan(graph, {{y, flat}, false}, PlanMode::kPacked, workspaces(graph, 0));
  EXPECT_EQ(plan.variable_of_value[static_cast<size_t>(flat.id)], w.id);
  EXPECT_NE(plan.buffer_of_value[static_cast<size_t>(y.id)], -1)
      << "a variable must not be overwritten in place";
  EXPECT_EQ(plan.buffers.size(), 1u);
}

TEST(Plan, UpdatesComeAfterEverythingThatCanFail) {
  SmallNet net;
  const Plan plan = make_plan(net.graph, net.training(), PlanMode::kDynamic, workspaces(net.graph, 64));
  bool updating = false;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kRun && net.graph.node(step.id).outputs.empty()) updating = true;
    if (step.kind == StepKind::kAllocate && updating) {
      const Buffer& buffer = plan.buffers[static_cast<size_t>(step.id)];
      EXPECT_EQ(buffer.owner, -1) << "only workspace that a kernel states";
    }
    EXPECT_FALSE(updating && (step.kind == StepKind::kCopyIn || step.kind == StepKind::kCopyOut));
  }
  EXPECT_TRUE(updating);
}

TEST(Plan, RunsOnlyTheRequestedUpdates) {
  Graph graph;
  const Value a = graph.variable("a", {DType::kI32, {}}, zeros());
  const Value b = graph.variable("b", {DType::kI32, {}}, zeros());
  graph.add(CounterUpdate{}, std::vector<Value>{a});
  graph.add(CounterUpdate{}, std::vector<Value>{b});
  const std::vector<int64_t> workspace(2);
  for (PlanMode mode : kPlanModes) {
    const auto runs = [&](const Targets& targets) {
      Plan plan = make_plan(graph, targets, mode, workspace);
      EXPECT_EQ(find_fault(graph, plan, workspace), std::nullopt);
      plan.targets.updated = {b};
      EXPECT_EQ(find_fault(graph, plan, workspace).has_value(), targets.updated != std::vector{b});
      return plan.steps.size();
    };
    EXPECT_EQ(runs({{}, true}), 2u);
    EXPECT_EQ(runs({{}, true, {b}}), 1u);
    EXPECT_EQ(runs({{}, true, {a, b}}), 2u);
  }
  Graph other;
  const Value c = other.variable("c", {DType::kI32, {}}, zeros());
  EXPECT_THROW(make_plan(graph, {{}, true, {c}}, PlanMode::kDynamic, workspace), InvalidArgument);
}

TEST(Plan, RefusesToFetchAValueThatFusingRemoved) {
  SmallNet net;
  Value middle{&net.graph, net.graph.node(0).outputs[0]};
  fuse(net.graph);
  EXPECT_THROW(make_plan(net.graph, {{middle}, false}, PlanMode::kDynamic, workspaces(net.graph, 0)),
               InvalidArgument);
}

TEST(Plan, AStepDoesNotAllocateDoubledInputs) {
  SmallNet net;
  const std::vector<int64_t> workspace = workspaces(net.graph, 1000);
  for (PlanMode mode : kPlanModes) {
    Targets targets = net.training();
    const Plan single = make_plan(net.graph, targets, mode, workspace);
    targets.doubled_inputs = true;
    const Plan plan = make_plan(net.graph, targets, mode, workspace);
    EXPECT_EQ(find_fault(net.graph, plan, workspace), std::nullopt) << to_string(mode);
    EXPECT_EQ(single.input_set_bytes, 0);
    EXPECT_EQ(plan.input_set_bytes, 3328 + 256 + 256);  // 4 x 10 x 10 x 2 floats, 4 labels, a rate
    EXPECT_LE(plan.peak_bytes, single.peak_bytes);
    const auto damaged = [&](auto change) {
      Plan broken = plan;
      for (Buffer& buffer : broken.buffers) {
        if (buffer.doubled) change(broken, buffer);
      }
      return find_fault(net.graph, broken, workspace).has_value();
    };
    EXPECT_TRUE(damaged([](Plan&, Buffer& input) { input.offset_bytes = 0; }));
    EXPECT_TRUE(damaged([](Plan&, Buffer& input) { input.offset_bytes += 256; }));
    EXPECT_TRUE(damaged([](Plan& p, Buffer&) { ++p.input_set_bytes; }));
    EXPECT_TRUE(damaged([](Plan&, Buffer& input) { input.doubled = false; }));
  }
}

TEST(FindFault, FindsEveryKindOfFault) {
  SmallNet net;
  const std::vector<int64_t> workspace = workspaces(net.graph, 300);
  for (PlanMode mode : kPlanModes) {
    const Plan good = make_plan(net.graph, net.training(), mode, workspace);
    const auto damaged = [&](auto change) {
      Plan plan = good;
      change(plan);
      return find_fault(net.graph, plan, workspace).has_value();
    };
    // Omits every single step, and swaps every two neighbors of which the second needs the first.
    for (size_t i = 0; i < good.steps.size(); ++i) {
      EXPECT_TRUE(damaged([&](Plan& p) { p.steps.erase(p.steps.begin() + static_cast<long>(i)); }))
          << "step " << i;
    }
    EXPECT_TRUE(damaged([](Plan& p) { --p.peak_bytes; }));
    EXPECT_TRUE(damaged([](Plan& p) { p.buffers[0].bytes = 0; }));
    EXPECT_TRUE(damaged([](Plan& p) { p.buffer_of_value.pop_back(); }));
    EXPECT_TRUE(damaged([](Plan& p) { std::swap(p.steps.front(), p.steps.back()); }));
    // All values in one buffer that is large enough.
    EXPECT_TRUE(damaged([](Plan& p) {
      for (int& buffer : p.buffer_of_value) buffer = buffer < 0 ? -1 : 0;
      p.buffers[0].bytes = kMiB;
    }));
    if (has_arena(mode)) {
      EXPECT_TRUE(damaged([](Plan& p) {
        for (Buffer& buffer : p.buffers) buffer.offset_bytes = 0;
      }));
      // Copies have their places: before the first node and after the last one without side effects.
      const auto first = [](const Plan& p, StepKind kind) {
        return std::find_if(p.steps.begin(), p.steps.end(), [&](const Step& s) { return s.kind == kind; }) -
               p.steps.begin();
      };
      EXPECT_TRUE(damaged([&](Plan& p) {
        std::swap(p.steps[static_cast<size_t>(first(p, StepKind::kRun))],
                  p.steps[static_cast<size_t>(first(p, StepKind::kRun)) - 1]);
      }));
      EXPECT_TRUE(damaged([&](Plan& p) {
        const auto copy = p.steps.begin() + first(p, StepKind::kCopyOut);
        std::swap(copy[0], copy[-1]);
      }));
    }
  }
}

// Random interval sets, the checks written down again without the packer's code.
TEST(Pack, HasNoOverlapAndNeedsAtLeastTheLiveBytes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto draw = [&, i = uint64_t{0}](int64_t below) mutable {
      return static_cast<int64_t>(random_words(seed, 0, i++)[0] % static_cast<uint64_t>(below));
    };
    std::vector<Buffer> buffers(static_cast<size_t>(1 + draw(60)));
    std::vector<int64_t> live(100);
    for (Buffer& buffer : buffers) {
      buffer.bytes = 256 * (1 + draw(50));
      buffer.first_step = static_cast<int>(draw(99));
      buffer.end_step = buffer.first_step + 1 + static_cast<int>(draw(100 - buffer.first_step - 1));
      for (int step = buffer.first_step; step < buffer.end_step; ++step)
        live[static_cast<size_t>(step)] += buffer.bytes;
    }
    const int64_t height = pack(buffers), bound = *std::max_element(live.begin(), live.end());
    EXPECT_GE(height, bound);
    EXPECT_LE(height, bound * 3 / 2) << "seed " << seed
                                     << ": greedy placement is known to stay far below this";
    for (size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_LE(buffers[a].offset_bytes + buffers[a].bytes, height);
      for (size_t b = 0; b < a; ++b) {
        const bool in_time =
            buffers[a].first_step < buffers[b].end_step && buffers[b].first_step < buffers[a].end_step;
        const bool in_space = buffers[a].offset_bytes < buffers[b].offset_bytes + buffers[b].bytes &&
                              buffers[b].offset_bytes < buffers[a].offset_bytes + buffers[a].bytes;
        EXPECT_FALSE(in_time && in_space) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace headroom
