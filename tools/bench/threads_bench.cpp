// Measures the throughput of a strategy that several threads use, each on its own stream:
// `threads_bench STRATEGY... -- TRACE...`. Every thread replays the whole trace on a simulated H200 with
// memory for all. Counts warm passes for a second and reports the best of three such seconds.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "allocators/trace/read_trace.h"
#include "runtime/device/host/simulated_gpu.h"

namespace headroom {
namespace {

constexpr int kWarmPasses = 3;
constexpr int kRounds = 3;
constexpr std::chrono::milliseconds kRound(1000);

// One thread's copy of the trace. Blocks that are live at the end of a pass are freed.
class Player {
 public:
  Player(const Trace& trace, Allocator& allocator, Stream stream)
      : trace_(trace),
        allocator_(allocator),
        stream_(stream),
        pointers_(static_cast<size_t>(trace.blocks)),
        sizes_(pointers_.size()) {}

  // Returns the number of calls.
  int64_t pass() {
    int64_t calls = 0;
    for (const TraceEvent& event : trace_.events) {
      const auto block = static_cast<size_t>(event.block);
      if (event.allocates) {
        pointers_[block] = allocator_.allocate(event.bytes, stream_);
        sizes_[block] = event.bytes;
      } else {
        allocator_.deallocate(pointers_[block], event.bytes, stream_);
        pointers_[block] = nullptr;
      }
      ++calls;
    }
    for (size_t block = 0; block < pointers_.size(); ++block) {
      if (pointers_[block] == nullptr) continue;
      allocator_.deallocate(pointers_[block], sizes_[block], stream_);
      pointers_[block] = nullptr;
      ++calls;
    }
    return calls;
  }

 private:
  const Trace& trace_;
  Allocator& allocator_;
  const Stream stream_;
  std::vector<void*> pointers_;
  std::vector<int64_t> sizes_;
};

struct Rate {
  double calls_per_us = 0;  // of all threads together
  double driver_calls_per_million = 0;
};

Rate rate_of(const Trace& trace, const std::string& strategy, int threads) {
  using Clock = std::chrono::steady_clock;
  DeviceProfile profile = find_profile("h200");
  profile.total_bytes *= threads;
  SimulatedGpu gpu(profile, 0, Backing::kNone);
  const auto allocator = make_allocator(parse_strategy(strategy), gpu);
  std::vector<Stream> streams;
  for (int i = 0; i < threads; ++i) streams.push_back(gpu.streams().new_stream());
  std::barrier begin(threads + 1), end(threads + 1);
  std::atomic<bool> stop = false;
  std::vector<int64_t> calls(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      Player player(trace, *allocator, streams[static_cast<size_t>(i)]);
      for (int pass = 0; pass < kWarmPasses; ++pass) player.pass();
      for (int round = 0; round < kRounds; ++round) {
        begin.arrive_and_wait();
        int64_t count = 0;
        while (!stop.load(std::memory_order_relaxed)) count += player.pass();
        calls[static_cast<size_t>(i)] = count;
        end.arrive_and_wait();
      }
    });
  }
  Rate best;
  for (int round = 0; round < kRounds; ++round) {
    stop = false;
    begin.arrive_and_wait();
    const int64_t driver_calls_before = allocator->statistics().driver_calls();
    const auto start = Clock::now();
    std::this_thread::sleep_for(kRound);
    stop = true;
    end.arrive_and_wait();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    int64_t all = 0;
    for (const int64_t count : calls) all += count;
    const double calls_per_us = static_cast<double>(all) / us;
    if (calls_per_us <= best.calls_per_us) continue;
    const int64_t to_driver = allocator->statistics().driver_calls() - driver_calls_before;
    best = {calls_per_us, 1e6 * static_cast<double>(to_driver) / static_cast<double>(all)};
  }
  for (std::thread& thread : running) thread.join();
  return best;
}

int bench(int count, char** arguments) {
  std::vector<std::string> strategies;
  int at = 1;
  for (; at < count && std::string(arguments[at]) != "--"; ++at) strategies.emplace_back(arguments[at]);
  if (strategies.empty() || at + 1 >= count) {
    fmt::print(stderr, "usage: {} STRATEGY... -- TRACE...\n", arguments[0]);
    return kExitBadInput;
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  fmt::print("{:<12} {:<22} {:>7} {:>12} {:>10} {:>8} {:>20}\n", "trace", "strategy", "threads",
             "calls per us", "ns/call", "speedup", "driver calls per 10^6");
  while (++at < count) {
    for (const Trace& trace : read_traces(arguments[at])) {
      for (const std::string& strategy : strategies) {
        double alone = 0;
        for (int threads = 1; threads <= cores; threads *= 2) {
          const Rate rate = rate_of(trace, strategy, threads);
          if (threads == 1) alone = rate.calls_per_us;
          fmt::print("{:<12} {:<22} {:>7} {:>12.2f} {:>10.1f} {:>8.2f} {:>20.0f}\n",
                     std::filesystem::path(trace.name).stem().stem().string(), strategy, threads,
                     rate.calls_per_us, 1e3 * threads / rate.calls_per_us, rate.calls_per_us / alone,
                     rate.driver_calls_per_million);
        }
      }
    }
  }
  return kExitDone;
}

}  // namespace
}  // namespace headroom

int main(int count, char** arguments) {
  try {
    return headroom::bench(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "threads_bench: {}\n", error.what());
    return headroom::exit_code(error);
  }
}
