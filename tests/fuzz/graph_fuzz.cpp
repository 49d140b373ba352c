// A structured fuzzer: the bytes choose a training graph, the storage of its values, a memory budget, a plan,
// a strategy and a device. The plan has no fault, live memory fits the budget, and the weights after two
// steps have the bits of the plainest run on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/node_schedule.h"
#include "runtime/graph/optimizer.h"
#include "runtime/graph/precision.h"
#include "runtime/plan/frontier.h"
#include "runtime/plan/step_cost.h"
#include "runtime/session/session.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace headroom;

class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  // From 0 to n - 1; 0 at the end of the bytes.
  int below(size_t n) { return at_ < size_ ? static_cast<int>(data_[at_++] % n) : 0; }
  bool is_done() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// Layers over (rows, columns) with branches that meet again much later.
struct RandomNet {
  Graph graph;
  Value x, rate, step, loss;
  std::vector<Value> parameters;
  int64_t rows, columns;

  RandomNet(Choices& choices, Precision precision)
      : rows(1 + 4 * choices.below(8)), columns(4 * (1 + choices.below(8))) {
    x = graph.input("x", {DType::kF32, {rows, columns}});
    rate = graph.input("rate", {DType::kF32, {}});
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    std::vector<Value> values = {x};
    for (int layer = 0; layer < 40 && (layer == 0 || !choices.is_done()); ++layer) {
      const auto recent = static_cast<size_t>(choices.below(std::min<size_t>(3, values.size())));
      const Value a = values[values.size() - 1 - recent];
      const Value b = values[static_cast<size_t>(choices.below(values.size()))];
      values.push_back(add_layer(choices.below(20), layer, a, b));
    }
    const Value w = weight("last", {columns, 4});
    const Value logits = matmul(values.back(), w);
    loss = choices.below(2) == 0 ? mean(mul(logits, logits)) : mean(softmax(logits));
    const Optimizer optimizers[] = {Sgd{}, Sgd{.momentum = 0.9f}, Rmsprop{}, Adam{}, AdamW{}};
    add_updates(optimizers[choices.below(std::size(optimizers))], parameters, gradients(loss, parameters),
                rate, step);
    store_in(graph, precision, std::vector<Value>{loss});
  }

 private:
  Value weight(const std::string& name, const Shape& shape) {
    const Initializer initial = shape.rank() == 1 ? constant_of(0.5f) : glorot_uniform(shape, 7);
    parameters.push_back(graph.variable(name, {DType::kF32, shape}, initial));
    return parameters.back();
  }

  Value add_layer(int kind, int layer, const Value& a, const Value& b) {
    const std::string name = fmt::format("w{}", layer);
    const Shape shape = {rows, columns};
    switch (kind) {
      case 0:
      case 1:
      case 2:
        return matmul(a, weight(name, {columns, columns}));
      case 3:
        return relu(a);
      case 4:
        return gelu(a);
      case 5:
        return add(a, b);
      case 6:
        return mul(sigmoid(a), b);
      case 7:
        return sub(a, b);
      case 8:
        return div(a, add(sigmoid(b), fill(graph, 1, shape)));
      case 9:
        return dropout(a, 0.25f, static_cast<uint64_t>(layer), step);
      case 10: {
        const Value gamma = weight(name, {columns}), beta = weight(name + "b", {columns});
        return layer_norm(a, gamma, beta);
      }
      case 11:
        return reshape(tanh(reshape(a, {rows * columns})), shape);
      case 12:
        return softmax(a);
      case 13:
        return transpose(scale(transpose(a), 0.5f));
      case 14: {
        const Value left = slice(a, {0, 0}, {rows, columns / 2});
        const Value right = slice(b, {0, columns / 2}, {rows, columns / 2});
        return concat({right, left}, 1);
      }
      case 15:
        return where(comparison(CompareKind::kLess, a, b), b, a);
      case 16:
        return add(a, broadcast_to(mean(b, {0}, true), shape));
      case 17: {
        const Value image = reshape(a, {1, rows, columns, 1});
        return reshape(sum(relu(conv2d(image, weight(name, {1, 1, 1, 3}))), {3}), shape);
      }
      case 18:
        return bias(a, weight(name, {columns}));
      default:
        return cumulative_sum(scale(a, 0.125f), CumulativeSum{.axis = 1});
    }
  }
};

struct Way {
  std::string device, strategy;
  PlanMode plan;
  int budget = 0;  // 0: none; else 1 to kBudgets, the last of which is the minimum of any schedule
};
constexpr int kBudgets = 4;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// The graph in another order, with values computed again, so that it keeps to the budget.
std::unique_ptr<Graph> within_budget(const RandomNet& net, int budget) {
  constexpr DeviceSpeed kSpeed{.flops_per_us = 1e6, .bytes_per_us = 1e4, .launch_us = 0.1};
  const Targets targets{{net.loss}, true};
  const std::vector<int64_t> workspace(net.graph.nodes().size(), 0);
  const std::vector<double> us = node_times_us(net.graph, kSpeed);
  Frontier solver(net.graph, targets, {workspace, us}, {}, 200'000);
  const int64_t most = solver.solve(std::numeric_limits<int64_t>::max()).peak_bytes;
  const int64_t least = solver.solve(0).peak_bytes;
  const int64_t bytes = least + (most - least) * (kBudgets - budget) / kBudgets;
  const StepPoint solution = solver.solve(bytes);
  if (solution.peak_bytes > bytes)
    fail(fmt::format("{} bytes for a budget of {}", solution.peak_bytes, bytes));
  std::unique_ptr<Graph> graph = rewritten(net.graph, solution.schedule);
  const Plan plan = make_plan(*graph, {{Value{graph.get(), net.loss.id}}, true}, PlanMode::kPacked,
                              std::vector<int64_t>(graph->nodes().size(), 0));
  if (plan.lower_bound_bytes != solution.peak_bytes) {
    fail(fmt::format("{} bytes are live, not {}", plan.lower_bound_bytes, solution.peak_bytes));
  }
  return graph;
}

// The weights' bits after two steps; nothing where memory ran out.
std::optional<uint64_t> train(RandomNet& net, const Way& way) {
  const std::unique_ptr<Graph> smaller = way.budget > 0 ? within_budget(net, way.budget) : nullptr;
  Graph& graph = smaller != nullptr ? *smaller : net.graph;
  const auto here = [&](const Value& value) { return Value{&graph, value.id}; };
  try {
    Runtime runtime(
        {.device = way.device, .strategy = way.strategy, .plan = way.plan, .intra_op_threads = 1});
    Variables variables(graph, runtime.device(), runtime.allocator());
    Session session(graph, {{here(net.loss)}, true}, way.plan, variables);
    std::vector<int64_t> workspace(graph.nodes().size(), 0);
    for (size_t node = 0; node < workspace.size(); ++node) {
      const int buffer = session.plan().workspace_of_node[node];
      if (buffer >= 0) workspace[node] = session.plan().buffers[static_cast<size_t>(buffer)].bytes;
    }
    if (const auto fault = find_fault(graph, session.plan(), workspace)) fail(*fault);
    const std::span<float> x = session.input<float>(here(net.x));
    for (size_t i = 0; i < x.size(); ++i) x[i] = 2 * random_unit_float(5, 0, i) - 1;
    session.input<float>(here(net.rate))[0] = 1e-2f;
    session.run(2);
    std::vector<Value> parameters;
    for (const Value& parameter : net.parameters) parameters.push_back(here(parameter));
    return variables.checksum(parameters);
  } catch (const OutOfMemory&) {
  } catch (const LibraryError&) {
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices(data, std::min<size_t>(size, 200));
  static constexpr const char* kStrategies[] = {
      "allow-growth", "grab-all",       "hard-limit=1GiB", "two-ended",
      "caching",      "pool",           "arena",           "mapped",
      "direct",       "stream-ordered", "pool+limit=1MiB", "caching+thread-cache=1MiB"};
  static constexpr const char* kDevices[] = {"cpu", "sim", "sim:rtx-3090"};
  const auto modes = enum_values<PlanMode>();
  constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kBf16, Precision::kF16};
  Way way{kDevices[choices.below(std::size(kDevices))], kStrategies[choices.below(std::size(kStrategies))],
          modes[static_cast<size_t>(choices.below(modes.size()))]};
  way.budget = choices.below(1 + kBudgets);
  const Precision precision = kPrecisions[choices.below(std::size(kPrecisions))];
  RandomNet net(choices, precision);
  const auto plain = train(net, {"cpu", "direct", PlanMode::kDynamic});
  const auto bits = train(net, way);
  if (!plain || (bits && *bits != *plain)) {
    fail(fmt::format("{}, {}, {}, budget {}, {}", way.device, way.strategy, to_string(way.plan), way.budget,
                     to_string(precision)));
  }
  return 0;
}
