// Structured: the bytes choose a training graph, a plan, a strategy and a device. The plan has no fault, and
// the weights after two steps have the bits of the plainest run on the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "runtime/app/runtime.h"
#include "runtime/base/errors.h"
#include "runtime/base/random.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
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

  explicit RandomNet(Choices& choices) : rows(1 + 4 * choices.below(8)), columns(4 * (1 + choices.below(8))) {
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
};

// The weights' bits after two steps; nothing where memory ran out.
std::optional<uint64_t> train(const RandomNet& net, const Way& way) {
  const Targets targets{{net.loss}, true};
  try {
    Runtime runtime(
        {.device = way.device, .strategy = way.strategy, .plan = way.plan, .intra_op_threads = 1});
    Variables variables(net.graph, runtime.device(), runtime.allocator());
    Session session(net.graph, targets, way.plan, variables);
    std::vector<int64_t> workspace(net.graph.nodes().size(), 0);
    for (size_t node = 0; node < workspace.size(); ++node) {
      const int buffer = session.plan().workspace_of_node[node];
      if (buffer >= 0) workspace[node] = session.plan().buffers[static_cast<size_t>(buffer)].bytes;
    }
    if (const auto fault = find_fault(net.graph, session.plan(), workspace)) {
      std::fprintf(stderr, "%s\n", fault->c_str());
      std::abort();
    }
    const std::span<float> x = session.input<float>(net.x);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 2 * random_unit_float(5, 0, i) - 1;
    session.input<float>(net.rate)[0] = 1e-2f;
    session.run(2);
    return variables.checksum(net.parameters);
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
  Way way{kDevices[choices.below(std::size(kDevices))], kStrategies[choices.below(std::size(kStrategies))],
          modes[static_cast<size_t>(choices.below(modes.size()))]};
  const RandomNet net(choices);
  const auto plain = train(net, {"cpu", "direct", PlanMode::kDynamic});
  const auto bits = train(net, way);
  if (!plain || (bits && *bits != *plain)) {
    std::fprintf(stderr, "%s, %s, %s\n", way.device.c_str(), way.strategy.c_str(),
                 std::string(to_string(way.plan)).c_str());
    std::abort();
  }
  return 0;
}
