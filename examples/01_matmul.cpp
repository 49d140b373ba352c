// The shortest program: a graph of one matrix product, run on a device under a memory strategy.

#include <cstdio>

#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/session/session.h"

int main() {
  using namespace headroom;

  // The graph: c = a b. Building a node checks its shapes.
  Graph graph;
  const Value a = graph.input("a", {DType::kF32, {2, 3}});
  const Value b = graph.input("b", {DType::kF32, {3, 2}});
  const Value c = matmul(a, b);

  // The device and its memory strategy.
  Runtime runtime({.device = "cpu", .strategy = "allow-growth"});
  Variables variables(graph, runtime.device(), runtime.allocator());  // this graph has none

  // Fill the inputs, run, read the outputs; both are host memory.
  Session session(graph, {.fetches = {c}}, PlanMode::kDynamic, variables);
  for (int i = 0; i < 6; ++i) {
    session.input<float>(a)[i] = static_cast<float>(i);
    session.input<float>(b)[i] = static_cast<float>(i % 2);
  }
  session.run();

  const auto result = session.output<float>(c);
  std::printf("[%g %g]\n[%g %g]\n", result[0], result[1], result[2], result[3]);
  return 0;
}
