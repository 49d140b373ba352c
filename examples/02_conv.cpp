// Trains a convolution's filter to find the vertical edges of a square.

#include <cstdio>

#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

int main() {
  using namespace headroom;
  Graph graph;
  const Value image = graph.input("image", {DType::kF32, {1, 8, 8, 1}});    // (N,H,W,C)
  const Value wanted = graph.input("wanted", {DType::kF32, {1, 6, 6, 1}});  // expected output
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Shape window = {3, 3, 1, 1};  // (KH,KW,C,K)
  const Value filter = graph.variable("filter", {DType::kF32, window}, glorot_uniform(window, 1));
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());

  // Forward pass, loss, gradient and update are nodes of one graph.
  const Value error = sub(conv2d(image, filter), wanted);
  const Value loss = mean(mul(error, error));
  const std::vector<Value> trained = {filter};
  add_updates(Adam{}, trained, gradients(loss, trained), rate, step);

  Runtime runtime({.device = "sim", .strategy = "allow-growth"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {loss}, .updates = true}, PlanMode::kPacked, variables);

  // A bright square and its vertical edges, as the filter (-1 0 1) finds them.
  const auto pixels = session.input<float>(image), edges = session.input<float>(wanted);
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) pixels[y * 8 + x] = y >= 2 && y < 6 && x >= 2 && x < 6 ? 1.0f : 0.0f;
  }
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 6; ++x) edges[y * 6 + x] = pixels[(y + 1) * 8 + x + 2] - pixels[(y + 1) * 8 + x];
  }
  session.input<float>(rate)[0] = 0.03f;
  for (int i = 0; i <= 300; ++i) {
    session.run();
    if (i % 100 == 0) std::printf("step %3d  loss %.5f\n", i, session.output<float>(loss)[0]);
  }
  const Plan& plan = session.plan();
  std::printf("arena %lld bytes, largest live set %lld\n", static_cast<long long>(plan.peak_bytes),
              static_cast<long long>(plan.lower_bound_bytes));
  return 0;
}
