// Real time of a strategy's own code on allocation traces: `replay_bench STRATEGY... -- TRACE.csv.gz...`.
// Each trace is replayed several times over on the simulated H200. Calls are timed 64 at a time, and those
// with a driver call among them left out, because a simulated driver's real time says nothing; its simulated
// time is given beside.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocators/strategies/strategy.h"
#include "allocators/strategies/strategy_text.h"
#include "runtime/device/host/simulated_gpu.h"

namespace headroom {
namespace {

constexpr int kPasses = 10;
constexpr int kWarmPass = 2;  // the third: what is mapped by then stays, as far as it can
constexpr size_t kCallsAtOnce = 64;

struct Event {
  bool allocates;
  size_t block;  // numbered from 0
  int64_t bytes;
};

struct Trace {
  std::vector<Event> events;
  size_t blocks = 0;
  int64_t largest_live_set = 0;
};

// Blocks that are never freed are freed at the end, so that it can be replayed again.
Trace read_trace(const char* path) {
  Trace trace;
  std::unordered_map<long long, Event> live;
  int64_t live_bytes = 0;
  gzFile file = gzopen(path, "rb");
  if (file == nullptr) throw InvalidArgument(fmt::format("cannot read {}", path));
  for (char line[128]; gzgets(file, line, sizeof line) != nullptr;) {
    char op = 0;
    long long id = 0, bytes = 0;
    if (std::sscanf(line, "%c,%lld,%lld", &op, &id, &bytes) < 2) continue;
    if (op == 'a' && bytes > 0) {
      live[id] = {true, trace.blocks++, bytes};
      trace.events.push_back(live[id]);
      live_bytes += bytes;
      trace.largest_live_set = std::max(trace.largest_live_set, live_bytes);
    } else if (const auto found = live.find(id); op == 'f' && found != live.end()) {
      trace.events.push_back({false, found->second.block, found->second.bytes});
      live_bytes -= found->second.bytes;
      live.erase(found);
    }
  }
  gzclose(file);
  std::vector<Event> rest;
  for (const auto& [id, event] : live) rest.push_back({false, event.block, event.bytes});
  std::sort(rest.begin(), rest.end(), [](const Event& a, const Event& b) { return a.block < b.block; });
  trace.events.insert(trace.events.end(), rest.begin(), rest.end());
  return trace;
}

struct Pass {
  double own_ns_per_call = 0;
  double calls_with_driver = 0;  // share, in pieces of kCallsAtOnce
  double driver_us_per_call = 0;
  int64_t driver_calls = 0;
};

Pass replay(const Trace& trace, Allocator& allocator, Device& device, std::vector<void*>& pointers) {
  using Clock = std::chrono::steady_clock;
  Pass pass;
  double own_ns = 0;
  size_t own_calls = 0;
  const double driver_us = device.memory().driver_time_us();
  const int64_t calls_before = allocator.statistics().driver_calls();
  int64_t calls_so_far = calls_before;
  for (size_t begin = 0; begin < trace.events.size(); begin += kCallsAtOnce) {
    const size_t end = std::min(begin + kCallsAtOnce, trace.events.size());
    const auto start = Clock::now();
    for (size_t i = begin; i < end; ++i) {
      const Event& event = trace.events[i];
      if (event.allocates) {
        pointers[event.block] = allocator.allocate(event.bytes);
      } else {
        allocator.deallocate(pointers[event.block], event.bytes);
      }
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    const int64_t calls = allocator.statistics().driver_calls();
    if (calls == calls_so_far) {
      own_ns += ns;
      own_calls += end - begin;
    }
    calls_so_far = calls;
  }
  const auto all = static_cast<double>(trace.events.size());
  pass.own_ns_per_call = own_calls == 0 ? 0 : own_ns / static_cast<double>(own_calls);
  pass.calls_with_driver = 1 - static_cast<double>(own_calls) / all;
  pass.driver_us_per_call = (device.memory().driver_time_us() - driver_us) / all;
  pass.driver_calls = calls_so_far - calls_before;
  return pass;
}

void run(const std::string& strategy, const char* path) {
  const Trace trace = read_trace(path);
  SimulatedGpu gpu(find_profile("h200"));
  const auto allocator = make_allocator(parse_strategy(strategy), gpu);
  std::vector<void*> pointers(trace.blocks);
  std::vector<Pass> passes;
  for (int i = 0; i < kPasses; ++i) passes.push_back(replay(trace, *allocator, gpu, pointers));
  const Pass &first = passes.front(), &warm = passes[kWarmPass];
  double best = warm.own_ns_per_call;
  for (size_t i = kWarmPass; i < passes.size(); ++i) best = std::min(best, passes[i].own_ns_per_call);
  fmt::print("{:<14} {:<22} {:>8.4f} {:>8.1f} {:>8.1f} {:>9} {:>9} {:>10.3f} {:>10.3f}\n",
             std::filesystem::path(path).stem().stem().string(), strategy,
             static_cast<double>(allocator->statistics().reserved.peak) /
                 static_cast<double>(trace.largest_live_set),
             warm.own_ns_per_call, best, first.driver_calls, warm.driver_calls, first.driver_us_per_call,
             warm.driver_us_per_call);
}

int bench(int count, char** arguments) {
  std::vector<std::string> strategies;
  int at = 1;
  for (; at < count && std::string(arguments[at]) != "--"; ++at) strategies.emplace_back(arguments[at]);
  if (strategies.empty() || at + 1 >= count) {
    fmt::print(stderr, "usage: {} STRATEGY... -- TRACE.csv.gz...\n", arguments[0]);
    return kExitBadInput;
  }
  fmt::print("{:<14} {:<22} {:>8} {:>8} {:>8} {:>9} {:>9} {:>10} {:>10}\n", "trace", "strategy", "reserved",
             "ns/call", "best", "1st calls", "3rd calls", "1st us/cl", "3rd us/cl");
  while (++at < count) {
    for (const std::string& strategy : strategies) run(strategy, arguments[at]);
  }
  return kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int count, char** arguments) {
  try {
    return headroom::bench(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "replay_bench: {}\n", error.what());
    return headroom::exit_code(error);
  }
}
