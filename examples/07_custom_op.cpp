// Trains a net with an op of its own: snake(x) = x + sin(x)^2, an activation for periodic data.

#include <cmath>
#include <cstdio>
#include <optional>

#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

using namespace headroom;

// f32 operands of one shape give a result of that shape.
Outputs infer_snake(const OpCheck& c) {
  c.floats(c.size());
  for (size_t i = 1; i < c.size(); ++i) c.same_shape(i, c.shape(0));
  return {c.input(0)};
}

void run_snake(const KernelCall& call) {
  for (int64_t i = 0; i < call.outputs[0].elements(); ++i)
    call.out()[i] = call.in(0)[i] + std::pow(std::sin(call.in(0)[i]), 2.0f);
}

void run_snake_grad(const KernelCall& call) {  // dy, x -> dx
  for (int64_t i = 0; i < call.outputs[0].elements(); ++i)
    call.out()[i] = call.in(0)[i] * (1 + std::sin(2 * call.in(1)[i]));
}

const CustomOp kSnakeGrad = {.name = "snake_grad", .infer = infer_snake, .cpu = run_snake_grad};

std::vector<std::optional<Value>> snake_gradient(const GradientContext& c) {
  return {custom(kSnakeGrad, {c.dy(), c.in[0]})[0]};
}

const CustomOp kSnake = {.name = "snake", .infer = infer_snake, .cpu = run_snake, .gradient = snake_gradient};

int main() {
  constexpr int64_t kPoints = 256, kHidden = 32;
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {kPoints, 1}}), y = graph.input("y", x.spec());
  const Value w1 = graph.variable("w1", {DType::kF32, {1, kHidden}}, uniform(-3, 3, 1));
  const Value w2 = graph.variable("w2", {DType::kF32, {kHidden, 1}}, glorot_uniform({kHidden, 1}, 2));
  const Value error = sub(matmul(custom(kSnake, {matmul(x, w1)})[0], w2), y);
  const Value loss = mean(mul(error, error)), rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const Value weights[] = {w1, w2};
  add_updates(Adam{}, weights, gradients(loss, weights), rate, step);

  Runtime runtime({.device = "sim", .strategy = "allow-growth"});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {loss}, .updates = true}, PlanMode::kPacked, variables);
  for (int64_t i = 0; i < kPoints; ++i) {
    session.input<float>(x)[i] = static_cast<float>(i - kPoints / 2) / 32;  // -4 to 4
    session.input<float>(y)[i] = std::pow(std::sin(2 * session.input<float>(x)[i]), 2.0f);
  }
  session.input<float>(rate)[0] = 0.01f;
  session.run();
  const float first = session.output<float>(loss)[0];
  session.run(500);
  std::printf("loss %.4f, after 500 steps %.4f\n", first, session.output<float>(loss)[0]);
  return session.output<float>(loss)[0] < first / 10 ? 0 : 1;
}
