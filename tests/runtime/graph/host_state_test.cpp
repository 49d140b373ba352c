// Tests which states of an optimizer may lie in host memory, and which nodes may access them there.
#include "runtime/graph/host_state.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/plan.h"

namespace headroom {
namespace {

// A step of two layers, the second one with more weights.
struct NetWithStates {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {4, 8}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  Value first = graph.variable("first", {DType::kF32, {8, 8}}, ones());
  Value second = graph.variable("second", {DType::kF32, {8, 64}}, ones());
  Value loss = mean(matmul(matmul(x, first), second));

  explicit NetWithStates(const Optimizer& optimizer) {
    const std::vector<Value> weights = {first, second};
    add_updates(optimizer, weights, gradients(loss, weights), rate, step);
  }
  std::vector<int64_t> workspace() const { return std::vector<int64_t>(graph.nodes().size()); }
  std::vector<std::string> movable(const std::vector<Value>& fetches = {}) const {
    std::vector<std::string> names;
    for (const int id : find_movable_states(graph, fetches)) names.push_back(graph.value(id).name);
    return names;
  }
  int find(const std::string& name) const {
    for (const int id : graph.variables()) {
      if (graph.value(id).name == name) return id;
    }
    return -1;
  }
};

TEST(HostState, TheStatesOfEachOptimizerMayGoTheLargestFirst) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NetWithStates(Sgd{}).movable(), Names());
  EXPECT_EQ(NetWithStates(Sgd{0.9f}).movable(), (Names{"second/momentum", "first/momentum"}));
  EXPECT_EQ(NetWithStates(Rmsprop{}).movable(), (Names{"second/square", "first/square"}));
  EXPECT_EQ(NetWithStates(Adam{}).movable(), (Names{"second/m", "second/v", "first/m", "first/v"}));
}

TEST(HostState, WhatIsFetchedOrReadByOtherNodesStays) {
  NetWithStates net(Adam{});
  const Value m{&net.graph, net.find("second/m")}, v{&net.graph, net.find("first/v")};
  mean(v);
  EXPECT_EQ(net.movable({m}), (std::vector<std::string>{"second/v", "first/m"}));
}

TEST(HostState, APlanHoldsItForNoFaultAndTakesNothingOfTheHost) {
  NetWithStates net(Adam{});
  const Targets targets{{net.loss}, true};
  const Plan before = make_plan(net.graph, targets, PlanMode::kPacked, net.workspace());
  const std::vector<int> states = find_movable_states(net.graph, targets.fetches);
  put_on_host(net.graph, states);
  for (const PlanMode mode : enum_values<PlanMode>()) {
    const Plan plan = make_plan(net.graph, targets, mode, net.workspace());
    EXPECT_EQ(find_fault(net.graph, plan, net.workspace()), std::nullopt) << to_string(mode);
    EXPECT_EQ(host_bytes_of(plan), 0) << "variables are no part of a step";
    if (mode == PlanMode::kPacked) {
      EXPECT_EQ(plan.peak_bytes, before.peak_bytes);
    }
  }
  int64_t bytes = 0;
  for (const int64_t of_node : host_state_bytes(net.graph)) bytes += of_node;
  EXPECT_EQ(bytes, 2 * (net.first.spec().bytes() + net.second.spec().bytes()));
}

TEST(HostState, AWeightInHostMemoryIsRefusedByThePlannerAndByTheChecker) {
  NetWithStates net(Adam{});
  const Targets targets{{net.loss}, true};
  const Plan plan = make_plan(net.graph, targets, PlanMode::kPacked, net.workspace());
  const int weight = net.first.id;
  put_on_host(net.graph, {&weight, 1});
  EXPECT_THROW(make_plan(net.graph, targets, PlanMode::kPacked, net.workspace()), InvalidArgument);
  const std::optional<std::string> fault = find_fault(net.graph, plan, net.workspace());
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->find("from another device"), std::string::npos) << *fault;
}

TEST(HostState, AStateThatAnotherNodeReadsThereIsRefused) {
  NetWithStates net(Adam{});
  const Value state{&net.graph, net.find("second/m")};
  const Value sum = mean(state);
  put_on_host(net.graph, {&state.id, 1});
  EXPECT_THROW(make_plan(net.graph, {{net.loss, sum}, true}, PlanMode::kPacked, net.workspace()),
               InvalidArgument);
}

}  // namespace
}  // namespace headroom
