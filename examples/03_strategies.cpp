// Runs one graph under several strategies on a simulated 2 GB GPU.

#include <cstdio>

#include "base/bytes.h"
#include "runtime/app/runtime.h"
#include "runtime/graph/functions.h"
#include "runtime/session/session.h"

namespace {

using namespace headroom;

void run(const RuntimeOptions& options) {
  Graph graph;
  const Value x = graph.input("x", {DType::kF32, {64, 28, 28, 1}});
  const Shape window = {3, 3, 1, 32};
  const Value filter = graph.variable("filter", {DType::kF32, window}, glorot_uniform(window, 1));
  const Value weights = graph.variable("weights", {DType::kF32, {5408, 10}}, glorot_uniform({5408, 10}, 1));
  const Value y = matmul(flatten(max_pool(relu(conv2d(x, filter)))), weights);

  Runtime runtime(options);
  try {
    Variables variables(graph, runtime.device(), runtime.allocator());
    Session session(graph, {.fetches = {y}}, PlanMode::kDynamic, variables);
    session.run();
    std::printf("%-12s  ", options.strategy.c_str());
  } catch (const LibraryError& error) {
    std::printf("%-12s  %s\n%14s", options.strategy.c_str(), error.what(), "");
  }
  const MemoryInfo memory = runtime.device().memory().info();
  const Statistics pool = runtime.allocator().statistics();
  std::printf("device %s of %s, process %s, reserved %s, allocated %s\n",
              format_bytes(memory.peak_used).c_str(), format_bytes(memory.total).c_str(),
              format_bytes(memory.peak_process).c_str(), format_bytes(pool.reserved.peak).c_str(),
              format_bytes(pool.allocated.peak).c_str());
}

}  // namespace

int main() {
  run({.device = "sim", .strategy = "grab-all"});
  run({.device = "sim", .strategy = "allow-growth"});
  run({.device = "sim", .strategy = "hard-limit", .limit_bytes = 1 * kGiB});
  // Growth and a limit combine. A limit can also count the whole process with context and libraries.
  run({.device = "sim",
       .strategy = "allow-growth",
       .limit_bytes = 600 * kMiB,
       .limit_scope = LimitScope::kProcess});
  return 0;
}
