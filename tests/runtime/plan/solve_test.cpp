// Budgets of memory: random training graphs keep to them with the same bits.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>

#include "base/errors.h"
#include "runtime/graph/data_flow.h"
#include "runtime/graph/fuse.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/placement.h"
#include "runtime/plan/compress_norms.h"
#include "runtime/plan/frontier.h"
#include "runtime/plan/given_again.h"
#include "runtime/plan/search_drops.h"
#include "runtime/plan/step_cost.h"
#include "tests/runtime/session/harness.h"
#include "tests/runtime/session/small_net.h"

namespace headroom {
namespace {

constexpr DeviceSpeed kSpeed{.flops_per_us = 1e6, .bytes_per_us = 1e4, .launch_us = 0.1};

constexpr int64_t kEnough = std::numeric_limits<int64_t>::max();

// A training step of random layers, with branches that meet again much later.
struct RandomNet {
  Graph graph;
  Value x, rate, step, loss;
  std::vector<Value> parameters;

  explicit RandomNet(uint32_t seed, int least_layers = 4, int more_layers = 20) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    const int64_t rows = 16 * (1 + below(4)), columns = 16 * (1 + below(3));
    x = graph.input("x", {DType::kF32, {rows, columns}});
    rate = graph.input("rate", {DType::kF32, {}});
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> values = {x};
    const int layers = least_layers + below(more_layers);
    for (int layer = 0; layer < layers; ++layer) {
      const auto recent = static_cast<size_t>(below(std::min<int>(3, static_cast<int>(values.size()))));
      const Value a = values[values.size() - 1 - recent];
      const Value b = values[static_cast<size_t>(below(static_cast<int>(values.size())))];
      const std::string name = fmt::format("w{}", layer);
      switch (below(11)) {
        case 0:
        case 1:
        case 2: {
          const Value w = graph.variable(name, {DType::kF32, {columns, columns}},
                                         glorot_uniform({columns, columns}, seed));
          parameters.push_back(w);
          values.push_back(matmul(a, w));
          break;
        }
        case 3:
          values.push_back(relu(a));
          break;
        case 4:
          values.push_back(gelu(a));
          break;
        case 5:
          values.push_back(add(a, b));
          break;
        case 6:
          values.push_back(mul(sigmoid(a), b));
          break;
        case 7:
          values.push_back(dropout(a, 0.25f, seed + static_cast<uint64_t>(layer), step));
          break;
        case 8: {
          const Value gamma = graph.variable(name, {DType::kF32, {columns}}, ones());
          const Value beta = graph.variable(name + "b", {DType::kF32, {columns}}, zeros());
          parameters.insert(parameters.end(), {gamma, beta});
          values.push_back(layer_norm(a, gamma, beta));
          break;
        }
        case 9: {
          const NameScope scope(graph, name);
          const Value w = graph.variable("w", {DType::kF32, {columns, columns}},
                                         glorot_uniform({columns, columns}, seed));
          const BatchNormState state = batch_norm_state(graph, columns);
          parameters.insert(parameters.end(), {w, state.gamma, state.beta});
          values.push_back(relu(batch_norm_training(matmul(a, w), state)));
          break;
        }
        default:
          values.push_back(reshape(tanh(reshape(a, {rows * columns})), {rows, columns}));
      }
    }
    const Value w = graph.variable("last", {DType::kF32, {columns, 4}}, glorot_uniform({columns, 4}, seed));
    parameters.push_back(w);
    loss = mean(mul(matmul(values.back(), w), matmul(values.back(), w)));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
    fuse(graph, std::span(&loss, 1));
  }
  Targets targets() const { return {{loss}, true}; }
};

// Nodes that read a result of a batch norm as its gradient gives it again.
int readers_of_given(const Graph& graph) {
  const std::vector<bool> is_read = read_values(graph);
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    const auto* gradient = std::get_if<BatchNormGrad>(&node.op);
    return gradient && gradient->again && is_read[static_cast<size_t>(node.outputs[3])];
  }));
}

// The bits of all parameters after some steps.
uint64_t train(const RandomNet& net, const NodeSchedule& schedule) {
  const std::unique_ptr<Graph> graph = rewritten(net.graph, schedule);
  const auto here = [&](const Value& value) { return Value{graph.get(), value.id}; };
  CpuHarness cpu;
  Variables variables(*graph, cpu.device, *cpu.allocator);
  Session session(*graph, {{here(net.loss)}, true}, PlanMode::kPacked, variables);
  const std::vector<float> data = random_floats(net.x.shape().elements(), 5);
  std::copy(data.begin(), data.end(), session.input<float>(here(net.x)).begin());
  session.input<float>(here(net.rate))[0] = 1e-2f;
  session.run(2);
  std::vector<Value> parameters;
  for (const Value& parameter : net.parameters) parameters.push_back(here(parameter));
  return variables.checksum(parameters);
}

// The most that is live on the device at a step of a plan with an arena.
int64_t most_live(const Plan& plan) {
  int64_t most = 0;
  for (int step = 0; step < static_cast<int>(plan.steps.size()); ++step) {
    int64_t live = 0;
    for (const Buffer& buffer : plan.buffers) {
      if (plan.devices[static_cast<size_t>(buffer.device)].name == kHostPlace) continue;
      if (buffer.first_step <= step && step < buffer.end_step) live += buffer.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

// A sanitizer looks for faults of memory, which a quarter of the graphs show: each takes all of the solver's
// code.
#ifdef __SANITIZE_ADDRESS__
constexpr int kRandomGraphs = 50;
#else
constexpr int kRandomGraphs = 200;
#endif

// Totals over random graphs at random budgets.
struct RandomBudgets {
  int kept = 0, changed = 0, given = 0, offloaded = 0, recomputed_too = 0, compressed = 0;
  double us = 0;  // time of all steps together
};

void keep_to_random_budgets(uint32_t seed, const HostLink& host, RandomBudgets& seen,
                            bool compresses = false) {
  RandomNet net(seed);
  const Targets targets = net.targets();
  if (compresses) seen.compressed += compress_norms(net.graph, targets.fetches);
  const std::vector<int64_t> workspace = workspaces(net.graph, 256 * (seed % 3));
  const std::vector<double> us = node_times_us(net.graph, kSpeed);
  Frontier solver(net.graph, targets, {workspace, us}, host, 200'000);
  const int64_t most = solver.solve(kEnough).peak_bytes, least = solver.solve(0).peak_bytes;
  ASSERT_LE(least, most) << seed;
  std::mt19937 random(seed);
  const int64_t budget = least + (most - least) * static_cast<int64_t>(random() % 101) / 100;
  const StepPoint solution = solver.solve(budget);
  ASSERT_TRUE(solution.peak_bytes <= budget) << seed;
  ++seen.kept;
  seen.changed += solution.schedule.empty() ? 0 : 1;
  seen.offloaded += solution.schedule.stores() > 0 ? 1 : 0;
  seen.recomputed_too += solution.schedule.stores() > 0 && solution.schedule.repeats() > 0 ? 1 : 0;
  seen.us += solution.us;

  const std::unique_ptr<Graph> graph = rewritten(net.graph, solution.schedule);
  seen.given += readers_of_given(*graph) > 0 ? 1 : 0;
  std::vector<int64_t> again = workspaces(*graph, 256 * (seed % 3));
  for (size_t id = 0; id < again.size(); ++id) {
    if (is_host_copy(*graph, graph->nodes()[id])) again[id] = 0;
  }
  const Targets here{{Value{graph.get(), net.loss.id}}, true};
  const Plan plan = make_plan(*graph, here, PlanMode::kPacked, again);
  ASSERT_EQ(find_fault(*graph, plan, again), std::nullopt) << seed;
  ASSERT_EQ(plan.lower_bound_bytes, solution.peak_bytes) << seed << ": the model of the step is exact";
  ASSERT_LE(most_live(plan), budget) << seed;
  ASSERT_GE(host_bytes_of(plan), solution.host_bytes) << seed;
  ASSERT_LE(solution.host_bytes, host.max_bytes) << seed;
  // Values in 8 bits are computed again with other roundings.
  const uint64_t bits = train(net, solution.schedule);
  ASSERT_TRUE(compresses || bits == train(net, {})) << seed;
  ASSERT_EQ(bits, train(net, solution.schedule)) << seed;
}

TEST(Solve, RandomGraphsKeepToRandomBudgetsWithTheSameBits) {
  RandomBudgets seen;
  for (uint32_t seed = 1; seed <= kRandomGraphs; ++seed) {
    keep_to_random_budgets(seed, {}, seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen.kept, kRandomGraphs);
  EXPECT_GT(seen.changed, kRandomGraphs / 2);
  EXPECT_GT(seen.given, kRandomGraphs / 20);
  EXPECT_EQ(seen.offloaded, 0) << "there is no link to a host";
}

TEST(Solve, RandomGraphsWithCompressedNormsKeepToRandomBudgets) {
  RandomBudgets seen;
  constexpr int kGraphs = kRandomGraphs / 2;
  for (uint32_t seed = 1; seed <= kGraphs; ++seed) {
    const HostLink host{.bytes_per_us = 1e6, .latency_us = 0.1, .max_bytes = seed % 2 == 0 ? kEnough : 0};
    keep_to_random_budgets(seed, host, seen, true);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen.kept, kGraphs);
  EXPECT_GT(seen.compressed, kGraphs / 4);
}

TEST(Solve, RandomGraphsWithAHostKeepToRandomBudgetsWithTheSameBits) {
  RandomBudgets seen;
  constexpr int kGraphs = kRandomGraphs / 2;
  for (uint32_t seed = 1; seed <= kGraphs; ++seed) {
    // Links as slow as a node, and far faster; memory for all values, and for few.
    const HostLink host{.bytes_per_us = seed % 2 == 0 ? 1e4 : 1e6,
                        .latency_us = 0.1,
                        .max_bytes = seed % 5 == 0 ? int64_t{16'384} : kEnough};
    keep_to_random_budgets(seed, host, seen);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen.kept, kGraphs);
  EXPECT_GT(seen.offloaded, kGraphs / 2);
  EXPECT_GT(seen.recomputed_too, kGraphs / 20);
}

TEST(Solve, LessMemoryIsNeverCheaperWhateverWasAskedBefore) {
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    const RandomNet net(seed);
    const Targets targets = net.targets();
    const std::vector<int64_t> workspace = workspaces(net.graph, 0);
    const std::vector<double> us = node_times_us(net.graph, kSpeed);
    const auto new_solver = [&] { return Frontier(net.graph, targets, {workspace, us}, {}, 200'000); };
    Frontier solver = new_solver();
    const StepPoint least = solver.solve(0);
    const int64_t most = new_solver().solve(kEnough).peak_bytes;
    double before = least.us;
    for (int percent = 0; percent <= 100; percent += 5) {
      const int64_t budget = least.peak_bytes + (most - least.peak_bytes) * percent / 100;
      const StepPoint solution = solver.solve(budget), alone = new_solver().solve(budget);
      ASSERT_TRUE(solution.peak_bytes <= budget) << seed;
      EXPECT_LE(solution.us, before * (1 + 1e-12)) << seed << " at " << percent;
      EXPECT_EQ(solution.us, alone.us) << seed << " at " << percent;
      EXPECT_EQ(solution.peak_bytes, alone.peak_bytes) << seed << " at " << percent;
      before = solution.us;
    }
  }
}

// All choices that a small step has, against the search.
TEST(Solve, FindsTheLeastOfSmallGraphs) {
  constexpr size_t kMostGaps = 8;
  int tried = 0, dropping_helps = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    const RandomNet net(seed, 2, 3);
    const Targets targets = net.targets();
    const std::vector<int64_t> workspace = workspaces(net.graph, 0);
    const std::vector<double> us = node_times_us(net.graph, kSpeed);
    const NeededNodes nodes = with_readers_behind(net.graph, find_needed_nodes(net.graph, targets));
    StepModel model(net.graph, targets, nodes, {workspace, us});
    std::vector<size_t> open;
    for (size_t gap = 0; gap < model.keep_all().size(); ++gap) {
      if (model.keep_all()[gap] == Keep::kAlways && model.can_drop(static_cast<int>(gap)))
        open.push_back(gap);
    }
    if (open.size() > kMostGaps) continue;
    ++tried;
    StepModel::Choices choices = model.keep_all();
    const int64_t most = model.evaluate(choices).peak_bytes;
    int64_t least = most;
    for (size_t at = 0; at < open.size();) {
      const StepModel::Outcome outcome = model.evaluate(choices);
      if (outcome.is_valid) least = std::min(least, outcome.peak_bytes);
      for (at = 0; at < open.size(); ++at) {  // counts in threes
        Keep& choice = choices[open[at]];
        choice = choice == Keep::kNever ? Keep::kAlways : static_cast<Keep>(static_cast<int>(choice) + 1);
        if (choice != Keep::kAlways) break;
      }
    }
    dropping_helps += least < most ? 1 : 0;
    const std::vector<StepModel::Choices> found = search_drops(model, {}, 1 << 20);
    EXPECT_EQ(model.evaluate(found.back()).peak_bytes, least) << seed;
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(dropping_helps, 20);
}

TEST(Solve, ChangesNothingWhereTheBudgetIsEnough) {
  SmallNet net;
  const Targets targets = net.training();
  const std::vector<int64_t> workspace = workspaces(net.graph, 0);
  const std::vector<double> us = node_times_us(net.graph, kSpeed);
  const StepPoint solution = Frontier(net.graph, targets, {workspace, us}).solve(kEnough);
  EXPECT_TRUE(solution.schedule.empty());
  EXPECT_TRUE(solution.levers.empty());
  EXPECT_EQ(solution.peak_bytes,
            make_plan(net.graph, targets, PlanMode::kPacked, workspace).lower_bound_bytes);
}

// Layers of product, norm and relu. If the norm's result is dropped after the forward pass, the gradient of
// the product's weights reads it as the gradient of the norm gives it again: no other node runs twice.
TEST(Solve, GradientsOfNormsGiveResultsAgainForLessThanComputingThem) {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {64, 32}});
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  std::vector<Value> parameters;
  for (int layer = 0; layer < 6; ++layer) {
    const NameScope scope(graph, fmt::format("layer_{}", layer));
    parameters.push_back(graph.variable("w", {DType::kF32, {32, 32}}, glorot_uniform({32, 32}, 1)));
    x = relu(batch_norm_training(matmul(x, parameters.back()), batch_norm_state(graph, 32)));
  }
  const Value loss = mean(x);
  add_updates(Sgd{}, parameters, gradients(loss, parameters), rate, step);
  fuse(graph, std::span(&loss, 1));
  const Targets targets{{loss}, true};
  const std::vector<int64_t> workspace = workspaces(graph, 0);
  const std::vector<double> us = node_times_us(graph, kSpeed);
  Frontier solver(graph, targets, {workspace, us});
  const StepPoint whole = solver.solve(kEnough), less = solver.solve(whole.peak_bytes * 8 / 10);
  EXPECT_LE(less.peak_bytes, whole.peak_bytes * 8 / 10);
  EXPECT_EQ(less.schedule.repeats(), 0);
  const std::unique_ptr<Graph> changed = rewritten(graph, less.schedule);
  EXPECT_GT(readers_of_given(*changed), 0);
  EXPECT_GT(less.us, whole.us) << "to write them takes time";
  // Each writes once the bytes that recomputing it would read and write.
  const double apply_us = us[static_cast<size_t>(std::distance(
      graph.nodes().begin(), std::find_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
        return std::holds_alternative<BatchNormApply>(node.op);
      })))];
  EXPECT_NEAR(less.us - whole.us, readers_of_given(*changed) * apply_us / 2, 1e-9);
}

// A chain of layers: with checkpoints some hold the rest between them.
struct Chain {
  Graph graph;
  Targets targets;
  std::vector<int64_t> workspace;
  std::vector<double> us;

  explicit Chain(int layers) {
    Value x = graph.input("x", {DType::kF32, {64, 64}});
    const Value rate = graph.input("rate", {DType::kF32, {}});
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const Value w = graph.variable("w", {DType::kF32, {64, 64}}, glorot_uniform({64, 64}, 1));
    for (int i = 0; i < layers; ++i) x = gelu(matmul(x, w));
    const Value loss = mean(x);
    const std::vector<Value> parameters = {w};
    add_updates(Sgd{}, parameters, gradients(loss, parameters), rate, step);
    targets = {{loss}, true};
    workspace = workspaces(graph, 0);
    us = node_times_us(graph, kSpeed);
  }
  Frontier solver(int64_t max_work = Frontier::kMaxWork) const {
    return {graph, targets, {workspace, us}, {}, max_work};
  }
};

TEST(Solve, AChainNeedsFarLessThanAllOfItsValues) {
  const Chain chain(64);
  Frontier solver = chain.solver();
  const StepPoint whole = solver.solve(kEnough);
  double before = whole.us;
  for (const int percent : {75, 50, 35, 25}) {
    const StepPoint solution = solver.solve(whole.peak_bytes * percent / 100);
    EXPECT_TRUE(solution.peak_bytes <= whole.peak_bytes * percent / 100) << percent;
    EXPECT_GE(solution.us, before) << "less memory costs no less time";
    EXPECT_LT(solution.us, 1.7 * whole.us) << percent;
    before = solution.us;
  }
}

// Each of them may have to be planned.
TEST(Solve, ALongStepHasFewSchedulesToChooseFrom) {
  const Chain chain(600);
  Frontier solver = chain.solver(1 << 22);
  const size_t count = solver.least_first().size();
  EXPECT_GT(count, 20u);
  EXPECT_LE(count * chain.graph.nodes().size(), size_t{1} << 20);
}

TEST(Solve, RefusesAScheduleOfAnotherGraph) {
  const RandomNet one(3), other(2);
  const Targets targets = one.targets();
  const std::vector<int64_t> workspace = workspaces(one.graph, 0);
  const std::vector<double> us = node_times_us(one.graph, kSpeed);
  NodeSchedule schedule = Frontier(one.graph, targets, {workspace, us}).solve(0).schedule;
  ASSERT_FALSE(schedule.empty());
  EXPECT_THROW(rewritten(other.graph, schedule), InvalidArgument);
  std::reverse(schedule.nodes.begin(), schedule.nodes.end());
  EXPECT_THROW(rewritten(one.graph, schedule), InvalidArgument);
}

TEST(StepCost, CountsMultiplicationsAndAdditions) {
  Graph graph;
  const Value a = graph.input("a", {DType::kF32, {10, 20}}), b = graph.input("b", {DType::kF32, {20, 30}});
  const Value image = graph.input("image", {DType::kF32, {2, 8, 8, 3}});
  const Value filter = graph.input("filter", {DType::kF32, {3, 3, 3, 16}});
  matmul(a, b);
  conv2d(image, filter);
  reshape(a, {200});
  EXPECT_EQ(flops_of(graph, graph.node(0)), 2 * 10 * 20 * 30);
  EXPECT_EQ(flops_of(graph, graph.node(1)), 2 * (2 * 6 * 6 * 16) * (3 * 3 * 3));
  EXPECT_EQ(moved_bytes_of(graph, graph.node(0)), 4 * (10 * 20 + 20 * 30 + 10 * 30));
  EXPECT_EQ(node_times_us(graph, kSpeed)[2], 0);
}

}  // namespace
}  // namespace headroom
