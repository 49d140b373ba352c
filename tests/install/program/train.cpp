// Fits a line by gradient descent: a graph, a strategy and a session of Headroom in a program outside its
// tree.
//   train DEVICE STRATEGY
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "base/errors.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

int main(int argc, char** argv) {
  using namespace headroom;
  if (argc != 3) return 2;

  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {8, 1}});
  const Value y = graph.input("y", {DType::kF32, {8, 1}});
  const Value rate = graph.input("rate", {DType::kF32, {}});
  const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
  const Value slope = graph.variable("slope", {DType::kF32, {1, 1}}, glorot_uniform({1, 1}, 1));
  const Value error = sub(matmul(x, slope), y);
  const Value loss = mean(mul(error, error));
  const std::vector<Value> weights = {slope};
  add_updates(Sgd{}, weights, gradients(loss, weights), rate, step);

  Runtime runtime({.device = argv[1], .strategy = argv[2]});
  Variables variables(graph, runtime.device(), runtime.allocator());
  Session session(graph, {.fetches = {loss}, .updates = true}, PlanMode::kDynamic, variables);
  for (int i = 0; i < 8; ++i) {
    session.input<float>(x)[i] = static_cast<float>(i) / 8;
    session.input<float>(y)[i] = 3 * static_cast<float>(i) / 8;
  }
  session.input<float>(rate)[0] = 0.5f;
  session.run(100);
  std::printf("loss %.4f, peak %lld bytes\n", static_cast<double>(session.output<float>(loss)[0]),
              static_cast<long long>(runtime.allocator().statistics().allocated.peak));

  // Exceptions of the library are caught here by their type.
  try {
    runtime.allocator().allocate(int64_t{1} << 60);
    return 1;
  } catch (const OutOfMemory& no_room) {
    std::printf("%lld bytes were requested\n", static_cast<long long>(no_room.facts().requested));
  }
  try {
    parse_strategy("no-such-strategy");
    return 1;
  } catch (const InvalidArgument&) {
  }
  return std::fabs(session.output<float>(loss)[0]) < 1e-3f ? 0 : 1;
}
