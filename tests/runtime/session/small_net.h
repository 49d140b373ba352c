// A small net for the runtime's tests, with most kinds of value: inputs, variables, in-place chains,
// reshapes, side results, updates.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"
#include "tests/runtime/session/harness.h"

namespace headroom {

struct SmallNet {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {4, 10, 10, 2}});
  Value labels = graph.input("labels", {DType::kI32, {4}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value loss, hidden, probabilities, step;
  std::vector<Value> parameters;

  SmallNet() {
    const Value filter =
        graph.variable("filter", {DType::kF32, {3, 3, 2, 8}}, glorot_uniform({3, 3, 2, 8}, 1));
    const Value b = graph.variable("bias", {DType::kF32, {8}}, zeros());
    const Value weights = graph.variable("weights", {DType::kF32, {128, 5}}, glorot_uniform({128, 5}, 1));
    step = graph.variable("step", {DType::kI32, {}}, zeros());
    parameters = {filter, b, weights};
    hidden = max_pool(relu(bias(conv2d(x, filter), b)));
    const Value logits = matmul(flatten(dropout(hidden, 0.25f, 3, step)), weights);
    probabilities = softmax(logits);
    loss = mean(cross_entropy(logits, labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
  Targets training() const { return {{loss, probabilities}, true}; }

  void feed(Session& session) const {
    const std::vector<float> values = random_floats(x.shape().elements(), 7);
    std::copy(values.begin(), values.end(), session.input<float>(x).begin());
    for (int i = 0; i < 4; ++i) session.input<int32_t>(labels)[static_cast<size_t>(i)] = i;
    session.input<float>(rate)[0] = 1e-2f;
  }
};

inline std::vector<int64_t> workspaces(const Graph& graph, int64_t bytes) {
  return std::vector<int64_t>(graph.nodes().size(), bytes);
}

}  // namespace headroom
