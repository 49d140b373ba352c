// Many sessions, and many steps, in one process: soak DEVICE STRATEGY SESSIONS STEPS. Prints the process's
// memory on the host and on the device as it runs, and exits with 5 if any of it has grown: if the maximum of
// the second half exceeds that of the first, of which a fifth is skipped as warm-up.

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/errors.h"
#include "runtime/app/run_main.h"
#include "runtime/app/runtime.h"
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
  int64_t resident = 0, heap = 0, device = 0;

  void raise_to(const Held& other) {
    resident = std::max(resident, other.resident);
    heap = std::max(heap, other.heap);
    device = std::max(device, other.device);
  }
};

// Pages of files come and go with the kernel's cache, so only anonymous ones count.
int64_t anonymous_bytes() {
  long pages = 0, resident = 0, of_files = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident >> of_files;
  return (resident - of_files) * sysconf(_SC_PAGESIZE);
}

Held held(Runtime& runtime) {
  const struct mallinfo2 heap = mallinfo2();
  return {anonymous_bytes(), static_cast<int64_t>(heap.uordblks + heap.hblkhd),
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

// Prints the maximum of both halves; returns true if the second exceeds the first plus the allowance.
bool grew(const char* what, int64_t first, int64_t second, int64_t allowed) {
  const bool is_more = second > first + allowed;
  fmt::print("{:>9}: {:12} bytes, then {:12}: {:+} ({} allowed){}\n", what, first, second, second - first,
             allowed, is_more ? ": GREW" : "");
  return is_more;
}

int run(int argc, char** argv) {
  if (argc != 5) throw InvalidArgument("usage: soak DEVICE STRATEGY SESSIONS STEPS");
  const int64_t sessions = std::atoll(argv[3]), steps = std::atoll(argv[4]);
  if (sessions < 100 || steps < sessions) throw InvalidArgument("at least 100 sessions of a step each");
  Runtime runtime({.device = argv[1], .strategy = argv[2]});
  const auto modes = enum_values<PlanMode>();
  const auto began = std::chrono::steady_clock::now();
  Held first, second;
  for (int64_t i = 1; i <= sessions; ++i) {
    run_session(runtime, modes[static_cast<size_t>(i) % modes.size()], steps / sessions);
    // Before the first line is printed too: the C library allocates a buffer for it.
    if (i % (sessions / 100) != 0) continue;
    const Held now = held(runtime);
    if (i > sessions / 10) (i > sessions / 2 ? second : first).raise_to(now);
    if (i % (sessions / 10) != 0) continue;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    fmt::print("{:8} sessions, {:8} steps, {:5.1f} s: resident {:10} bytes, heap {:10}, device {:12}\n", i,
               i * (steps / sessions), seconds.count(), now.resident, now.heap, now.device);
    std::fflush(stdout);
  }
  fmt::print("the most of sessions {} to {}, and of those after:\n", sessions / 10 + 1, sessions / 2);
  // The kernel counts pages, and a block that moves within the heap may touch a new one. Malloc's smallest
  // block has 32 bytes: the loss of one in every second session would be seen even where malloc does not
  // count.
  const int64_t pages = 8 * sessions;
  const bool resident = grew("resident", first.resident, second.resident, pages);
  const bool heap = grew("heap", first.heap, second.heap, 0);
  const bool device = grew("device", first.device, second.device, 0);
  const bool any = resident || heap || device;
  fmt::print("{} {}: {}\n", argv[1], argv[2], any ? "GREW" : "did not grow");
  return any ? kExitCheckFailed : kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run_main("soak", headroom::run, argc, argv);
}
