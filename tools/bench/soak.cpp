// Many sessions, and many steps, in one process: soak DEVICE STRATEGY SESSIONS STEPS. Prints what the process
// holds on the host and on the device as it goes, and exits with 5 when either has grown between the first
// tenth and the end.

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"
#include "runtime/base/errors.h"
#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"
#include "runtime/graph/optimizer.h"
#include "runtime/session/session.h"

namespace headroom {
namespace {

struct Net {
  Graph graph;
  Value x = graph.input("x", {DType::kF32, {8, 12, 12, 3}});
  Value labels = graph.input("labels", {DType::kI32, {8}});
  Value rate = graph.input("rate", {DType::kF32, {}});
  Value loss;

  Net() {
    const Value filter =
        graph.variable("filter", {DType::kF32, {3, 3, 3, 16}}, glorot_uniform({3, 3, 3, 16}, 1));
    const Value weights = graph.variable("weights", {DType::kF32, {400, 10}}, glorot_uniform({400, 10}, 1));
    const Value step = graph.variable("step", {DType::kI32, {}}, zeros());
    const std::vector<Value> parameters = {filter, weights};
    const Value hidden = flatten(max_pool(relu(conv2d(x, filter))));
    loss = mean(cross_entropy(matmul(dropout(hidden, 0.25f, 3, step), weights), labels));
    add_updates(Adam{}, parameters, gradients(loss, parameters), rate, step);
  }
};

struct Held {
  int64_t resident, heap, device;
};

Held held(Runtime& runtime) {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return {resident * sysconf(_SC_PAGESIZE), static_cast<int64_t>(mallinfo2().uordblks),
          runtime.memory_info().process};
}

// One session on the runtime, which outlives it; runs its steps one at a time and in captures.
void run_session(Runtime& runtime, PlanMode mode, int64_t steps) {
  const Net net;
  Variables variables(net.graph, runtime.device(), runtime.allocator());
  Session session(net.graph, {{net.loss}, true}, mode, variables);
  std::ranges::fill(session.input<float>(net.x), 0.5f);
  std::ranges::fill(session.input<int32_t>(net.labels), 1);
  session.input<float>(net.rate)[0] = 1e-3f;
  for (int64_t left = steps; left > 0;) {
    const int64_t count = std::min<int64_t>(left, left % 2 == 0 ? 50 : 1);
    session.run(count);
    left -= count;
  }
}

int run(int argc, char** argv) {
  if (argc != 5) throw InvalidArgument("usage: soak DEVICE STRATEGY SESSIONS STEPS");
  const int64_t sessions = std::atoll(argv[3]), steps = std::atoll(argv[4]);
  if (sessions < 10 || steps < 1) throw InvalidArgument("at least 10 sessions and 1 step");
  Runtime runtime({.device = argv[1], .strategy = argv[2]});
  const auto modes = enum_values<PlanMode>();
  Held first{};
  for (int64_t i = 0; i < sessions; ++i) {
    run_session(runtime, modes[static_cast<size_t>(i) % modes.size()],
                std::max<int64_t>(1, steps / sessions));
    if ((i + 1) % std::max<int64_t>(1, sessions / 10) != 0) continue;
    const Held now = held(runtime);
    if (first.resident == 0) first = now;
    fmt::print("{:8} sessions, {:8} steps: resident {:10} bytes, heap {:10}, device {:12}\n", i + 1,
               (i + 1) * std::max<int64_t>(1, steps / sessions), now.resident, now.heap, now.device);
    std::fflush(stdout);
  }
  const Held last = held(runtime);
  // The C library keeps freed memory in pieces that settle late: 1 % or 1 MiB.
  const int64_t slack = std::max<int64_t>(1 << 20, first.resident / 100);
  const bool grew = last.resident > first.resident + slack || last.heap > first.heap + (64 << 10) ||
                    last.device > first.device;
  fmt::print("{} {}: {}\n", argv[1], argv[2], grew ? "GREW" : "did not grow");
  return grew ? kExitCheckFailed : kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("soak", headroom::run, argc, argv);
}
