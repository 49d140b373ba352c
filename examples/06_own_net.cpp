// Trains a net of one's own: two dense layers that learn which of two spirals a point lies on.

#include <cmath>
#include <cstdio>

#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

int main() {
  using namespace headroom;
  constexpr int64_t kPoints = 256, kHidden = 64;

  // 1. The graph: inputs, variables and their first values, the loss. Building a node checks its shapes.
  Graph graph;
  const Value points = graph.input("points", {DType::kF32, {kPoints, 2}});
  const Value labels = graph.input("labels", {DType::kI32, {kPoints}});
  const Value w1 = graph.variable("w1", {DType::kF32, {2, kHidden}}, glorot_uniform({2, kHidden}, 1));
  const Value b1 = graph.variable("b1", {DType::kF32, {kHidden}}, zeros());
  const Value w2 = graph.variable("w2", {DType::kF32, {kHidden, 2}}, glorot_uniform({kHidden, 2}, 2));
  const Value hidden = relu(bias(matmul(points, w1), b1));  // (N,2) x (2,H) -> (N,H)
  const Value logits = matmul(hidden, w2);                  // (N,H) x (H,2) -> (N,2)
  const Value loss = mean(cross_entropy(logits, labels)), right = accuracy(logits, labels);

  // 2. Gradients and updates are nodes of the same graph, so one step is one graph.
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const Value weights[] = {w1, b1, w2};
  add_updates(Adam{}, weights, gradients(loss, weights), rate, step);

  // 3. The device with its memory strategy, the variables on it, and a session with its plan.
  Runtime runtime({.device = "sim", .strategy = "allow-growth"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {loss, right}, .updates = true}, PlanMode::kPacked, variables);

  // 4. Fill the inputs, run, read what was fetched.
  for (int64_t i = 0; i < kPoints; ++i) {
    const double angle = 0.02 * static_cast<double>(i / 2), side = i % 2 == 0 ? 1 : -1;
    session.input<float>(points)[2 * i] = static_cast<float>(side * angle * std::cos(2 * angle));
    session.input<float>(points)[2 * i + 1] = static_cast<float>(side * angle * std::sin(2 * angle));
    session.input<int32_t>(labels)[i] = static_cast<int32_t>(i % 2);
  }
  session.input<float>(rate)[0] = 0.01f;
  session.run(500);
  std::printf("loss %.4f, %.0f %% right, peak %.1f MiB\n", session.output<float>(loss)[0],
              100 * session.output<float>(right)[0],
              static_cast<double>(runtime.allocator().statistics().allocated.peak) / (1 << 20));
  return session.output<float>(right)[0] > 0.9f ? 0 : 1;
}
