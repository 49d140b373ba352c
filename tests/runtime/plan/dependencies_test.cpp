#include "runtime/plan/dependencies.h"

#include <algorithm>

#include "base/errors.h"
#include "runtime/graph/ancestors.h"
#include "runtime/graph/data_flow.h"
#include "runtime/graph/fuse.h"
#include "tests/runtime/session/shuffled_device.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

std::vector<int> nodes_of(const Plan& plan) {
  std::vector<int> nodes;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kRun) nodes.push_back(step.id);
  }
  return nodes;
}

// All but the reshapes, which do nothing.
std::vector<int> working_nodes(const Graph& graph, const Plan& plan) {
  std::vector<int> nodes = nodes_of(plan);
  std::erase_if(nodes, [&](int id) { return std::holds_alternative<Reshape>(graph.node(id).op); });
  return nodes;
}

// Counts pairs of nodes of which one must wait for the other, directly or not.
int64_t ordered_pairs(const std::vector<Waits>& waits) {
  Ancestors before(waits.size());
  int64_t pairs = 0;
  for (size_t i = 0; i < waits.size(); ++i) {
    for (int other : waits[i].after) before.add(i, static_cast<size_t>(other));
    for (size_t j = 0; j < i; ++j) pairs += before.has(i, j);
  }
  return pairs;
}

int64_t ordered_pairs(const Graph& graph, const std::vector<int>& nodes) {
  const Predecessors predecessors = find_predecessors(graph, nodes);
  Ancestors before(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const int other : predecessors.of(i)) before.add(i, static_cast<size_t>(other));
  }
  int64_t pairs = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) pairs += before.has(i, j);
  }
  return pairs;
}

TEST(Dependencies, FollowWritersAndReadersOfMemoryAndVariables) {
  Graph graph;
  const Value w = graph.variable("w", {DType::kF32, {64}}, ones());
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const Value a = sigmoid(w), b = relu(w), c = add(a, b);  // c takes over the memory of a
  const std::vector<Value> trained = {w};
  add_updates(Sgd{}, trained, std::vector<Value>{c}, rate, step);
  const Plan plan = make_plan(graph, {{}, true}, PlanMode::kParallel, workspaces(graph, 0));
  const std::vector<int> nodes = working_nodes(graph, plan);
  ASSERT_EQ(nodes.size(), 5u);  // sigmoid, relu, add, and the updates of w and step
  const std::vector<Waits> waits = find_dependencies(graph, plan, nodes);
  using Positions = std::vector<int>;
  EXPECT_EQ(waits[0].after, Positions{});
  EXPECT_EQ(waits[1].after, Positions{});
  EXPECT_EQ(waits[2].after, (Positions{1, 0}));
  EXPECT_EQ(waits[3].after, Positions{2});  // and so after 0 and 1, which read w
  EXPECT_EQ(waits[4].after, Positions{});
  EXPECT_EQ(waits[0].after_previous, Positions{3});  // w, and the memory of a
  EXPECT_EQ(waits[1].after_previous, Positions{3});
  EXPECT_EQ(waits[2].after_previous, Positions{});
  EXPECT_EQ(waits[4].after_previous, Positions{4});
}

// Too large for a bit for each pair of its nodes.
TEST(Dependencies, OfALargeGraphAreAFewForEachNodeAndFollowItsData) {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {64}});
  const Value skipped = relu(x);
  for (int i = 0; i < 4000; ++i) x = add(sigmoid(x), relu(x));
  x = add(x, skipped);
  const Plan plan = make_plan(graph, {{x}, false}, PlanMode::kPacked, workspaces(graph, 0));
  const std::vector<int> nodes = working_nodes(graph, plan);
  ASSERT_GT(nodes.size(), 12'000u);
  const std::vector<Waits> waits = find_dependencies(graph, plan, nodes);
  size_t count = 0;
  std::vector<int> maker(graph.values().size(), -1);
  Ancestors before(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    count += waits[i].after.size() + waits[i].after_previous.size();
    for (const int other : waits[i].after) before.add(i, static_cast<size_t>(other));
    const Node& node = graph.node(nodes[i]);
    for (const int input : node.inputs) {
      const int from = maker[static_cast<size_t>(input)];
      ASSERT_TRUE(from < 0 || before.has(i, static_cast<size_t>(from))) << i;
    }
    maker[static_cast<size_t>(node.outputs.front())] = static_cast<int>(i);
  }
  EXPECT_LE(count, 4 * nodes.size());
}

TEST(Dependencies, RefuseAPlanWithoutAddresses) {
  SmallNet net;
  const Plan plan = make_plan(net.graph, net.training(), PlanMode::kDynamic, workspaces(net.graph, 0));
  EXPECT_THROW(find_dependencies(net.graph, plan, working_nodes(net.graph, plan)), InvalidArgument);
}

TEST(ParallelPlan, AddsNoOrderToTheDataFlow) {
  for (bool fused : {false, true}) {
    for (int64_t bytes : {0, 1000}) {
      SmallNet net;
      if (fused) fuse(net.graph);
      const std::vector<int64_t> workspace = workspaces(net.graph, bytes);
      int64_t pairs[2];
      for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
        const Plan plan = make_plan(net.graph, net.training(), mode, workspace);
        const std::vector<int> nodes = working_nodes(net.graph, plan);
        pairs[mode == PlanMode::kParallel] = ordered_pairs(find_dependencies(net.graph, plan, nodes));
        if (mode == PlanMode::kParallel) {
          EXPECT_EQ(pairs[1], ordered_pairs(net.graph, nodes_of(plan))) << fused << " " << bytes;
        }
      }
      EXPECT_GT(pairs[0], pairs[1]) << "the packed plan has orders to take away";
    }
  }
}

TEST(ParallelPlan, NeedsMoreThanAPackedPlanButLessThanNoSharing) {
  SmallNet net;
  const std::vector<int64_t> workspace = workspaces(net.graph, 1000);
  const auto peak = [&](PlanMode mode) {
    return make_plan(net.graph, net.training(), mode, workspace).peak_bytes;
  };
  int64_t apart = 0;
  for (const Buffer& buffer : make_plan(net.graph, net.training(), PlanMode::kParallel, workspace).buffers) {
    apart += buffer.bytes;
  }
  EXPECT_GT(peak(PlanMode::kParallel), peak(PlanMode::kPacked));
  EXPECT_LT(peak(PlanMode::kParallel), apart);
}

// Random orders in which a GPU may run the branches and overlapping steps.
TEST(Dependencies, EveryAllowedOrderGivesTheSameBits) {
  const auto train = [](Device& device, PlanMode mode, bool fused) {
    SmallNet net;
    if (fused) fuse(net.graph);
    const auto allocator = make_allocator({.name = "direct"}, device);
    Variables variables(net.graph, device, *allocator);
    Session session(net.graph, net.training(), mode, variables);
    net.feed(session);
    session.run(36);  // one plain, twice 16 at once, the rest by parts
    std::vector<float> result = fetch<float>(session, net.loss);
    for (const Value& parameter : net.parameters) {
      const std::vector<float> values = read<float>(variables, parameter);
      result.insert(result.end(), values.begin(), values.end());
    }
    return result;
  };
  for (bool fused : {false, true}) {
    CpuDevice plain;
    const std::vector<float> expected = train(plain, PlanMode::kDynamic, fused);
    for (PlanMode mode : {PlanMode::kPacked, PlanMode::kParallel}) {
      for (uint64_t seed = 0; seed < 10; ++seed) {
        ShuffledDevice device(seed);
        EXPECT_EQ(train(device, mode, fused), expected) << to_string(mode) << " " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace headroom
