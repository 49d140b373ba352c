// Timed workloads of an allocator: a trace, one size in a loop, threads on streams of their own. Works with
// any type that has allocate(bytes, stream), deallocate(pointer, bytes, stream), reserved_peak_bytes() and
// driver_calls(). Knows no particular allocator.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "trace/trace.h"

namespace headroom {

using Clock = std::chrono::steady_clock;

inline double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

struct TraceTimes {
  double first_ns = 0, warm_ns = 0;  // per call of the first pass; median over the later ones
  double own_ns = 0;                 // the latter, of pieces in which our device was not called
  double first_ratio = 0,
         last_ratio = 0;  // reserved peak over the trace's, after the first pass and the last
  int64_t first_calls = 0, last_calls = 0;  // driver calls of the first pass and of the last; -1: not known
};

// Plays a trace on one stream.
template <typename A>
class Player {
 public:
  Player(const Trace& trace, A& allocator, Stream stream)
      : trace_(trace), allocator_(allocator), stream_(stream), pointers_(static_cast<size_t>(trace.blocks)) {}

  // Replays the events [begin, end). Throws the exceptions of `allocate`.
  void play(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const TraceEvent& event = trace_.events[i];
      if (event.allocates) {
        pointer_of(event) = allocator_.allocate(event.bytes, stream_);
      } else {
        free(event);
      }
    }
  }
  // Frees all live blocks.
  void free_rest() {
    for (const TraceEvent& event : trace_.events) {
      if (pointer_of(event) != nullptr) free(event);
    }
  }
  // A million calls or more, in whole passes; returns how many.
  int64_t run() {
    int64_t calls = 0;
    for (; calls < 1'000'000; calls += std::max<int64_t>(1, 2 * trace_.blocks)) {
      play(0, trace_.events.size());
      free_rest();
    }
    return calls;
  }

 private:
  void*& pointer_of(const TraceEvent& event) { return pointers_[static_cast<size_t>(event.block)]; }
  void free(const TraceEvent& event) {
    allocator_.deallocate(std::exchange(pointer_of(event), nullptr), event.bytes, stream_);
  }

  const Trace& trace_;
  A& allocator_;
  const Stream stream_;
  std::vector<void*> pointers_;
};

// Replays the trace repeatedly, on the default stream; frees the blocks that it never frees between passes.
// Throws the exceptions of `allocate`, with nothing left allocated.
template <typename A>
TraceTimes time_trace(const Trace& trace, int passes, Device& device, A& allocator) {
  constexpr size_t kPiece = 64;
  const size_t events = trace.events.size();
  Player<A> player(trace, allocator, {});
  TraceTimes times;
  std::vector<double> warm_ns, own_ns;
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t calls_before = allocator.driver_calls();
    double all = 0, own = 0;
    size_t own_calls = 0;
    try {
      for (size_t begin = 0; begin < events; begin += kPiece) {
        const size_t end = std::min(begin + kPiece, events);
        const double driver_us = device.memory().driver_time_us();
        const Clock::time_point start = Clock::now();
        player.play(begin, end);
        const double ns = ns_since(start);
        all += ns;
        if (device.memory().driver_time_us() > driver_us) continue;
        own += ns;
        own_calls += end - begin;
      }
    } catch (...) {
      player.free_rest();
      throw;
    }
    times.last_calls = calls_before < 0 ? -1 : allocator.driver_calls() - calls_before;
    times.last_ratio =
        static_cast<double>(allocator.reserved_peak_bytes()) / static_cast<double>(trace.peak_bytes);
    const double ns = all / static_cast<double>(events);
    if (pass == 0) {
      times.first_ns = ns;
      times.first_ratio = times.last_ratio;
      times.first_calls = times.last_calls;
    } else {
      warm_ns.push_back(ns);
      if (own_calls > 0) own_ns.push_back(own / static_cast<double>(own_calls));
    }
    player.free_rest();
  }
  times.warm_ns = median(warm_ns);
  times.own_ns = median(own_ns);
  return times;
}

// One allocation with its deallocation: the median of five times, the first left out.
template <typename A>
double ns_of_a_pair(int64_t bytes, A& allocator) {
  constexpr int kPairs = 10'000, kTimes = 5;
  std::vector<double> ns;
  for (int time = -1; time < kTimes; ++time) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kPairs; ++i) allocator.deallocate(allocator.allocate(bytes, {}), bytes, {});
    if (time >= 0) ns.push_back(ns_since(begin) / kPairs);
  }
  return median(ns);
}

// Measures pairs while the GPU works: a copy into each block is queued between its allocation and its
// deallocation. Excludes the copies and the time to read the clock.
template <typename A>
double ns_of_a_pair_at_work(int64_t bytes, Device& device, A& allocator) {
  constexpr int kPairs = 2'000, kTimes = 5;
  const int64_t work = 0;
  std::vector<double> clock_ns, ns;
  for (int i = 0; i < kPairs; ++i) clock_ns.push_back(ns_since(Clock::now()));
  for (int time = -1; time < kTimes; ++time) {
    double all = 0;
    for (int i = 0; i < kPairs; ++i) {
      const Clock::time_point begin = Clock::now();
      void* pointer = allocator.allocate(bytes, {});
      all += ns_since(begin);
      device.memory().copy_to_device(pointer, &work, sizeof work, {});
      const Clock::time_point end = Clock::now();
      allocator.deallocate(pointer, bytes, {});
      all += ns_since(end);
    }
    device.streams().synchronize({});
    if (time >= 0) ns.push_back(all / kPairs - 2 * median(clock_ns));
  }
  return median(ns);
}

// Measures pairs among other calls: 1000 blocks of 512 B to 2 MiB are live, and each pair replaces a random
// one by one of a random size. Every run is the same.
template <typename A>
double ns_of_a_pair_among_others(A& allocator) {
  constexpr int kPairs = 20'000, kTimes = 5;
  struct Block {
    void* pointer = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Block> blocks(1000);
  uint32_t random = 0;
  const auto next = [&] { return (random = random * 1664525 + 1013904223) >> 8; };  // Numerical Recipes'
  const auto replace = [&](Block& block) {
    if (block.pointer != nullptr) allocator.deallocate(block.pointer, block.bytes, {});
    block = {};
    const int64_t least = int64_t{512} << next() % 12;
    const int64_t bytes = least + static_cast<int64_t>(next()) % least;
    block = {allocator.allocate(bytes, {}), bytes};
  };
  const auto free_all = [&] {
    for (Block& block : blocks) {
      if (block.pointer != nullptr) allocator.deallocate(block.pointer, block.bytes, {});
      block = {};
    }
  };
  std::vector<double> ns;
  try {
    for (int time = -1; time < kTimes; ++time) {
      random = 1;
      for (Block& block : blocks) replace(block);
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < kPairs; ++i) replace(blocks[next() % blocks.size()]);
      if (time >= 0) ns.push_back(ns_since(begin) / kPairs);
    }
  } catch (...) {
    free_all();
    throw;
  }
  free_all();
  return median(ns);
}

// Replaces 64 live blocks of 512 B to 2 MiB one by one. The sizes and their order are the same in every turn,
// so that the second turn is warm.
template <typename A>
class Worker {
 public:
  Worker(A& allocator, Stream stream, uint32_t seed) : allocator_(allocator), stream_(stream), seed_(seed) {}

  // Returns its calls.
  int64_t run() {
    constexpr int kCalls = 40'000;
    uint32_t random = seed_;
    for (int i = 0; i < kCalls / 2; ++i) {
      random = random * 1664525 + 1013904223;  // Numerical Recipes' generator
      Block& block = blocks_[static_cast<size_t>(i) % std::size(blocks_)];
      if (block.pointer != nullptr) allocator_.deallocate(block.pointer, block.bytes, stream_);
      block.bytes = int64_t{512} << (random >> 8) % 13;
      block.pointer = allocator_.allocate(block.bytes, stream_);
    }
    for (Block& block : blocks_) {
      allocator_.deallocate(std::exchange(block.pointer, nullptr), block.bytes, stream_);
    }
    return kCalls;
  }

 private:
  struct Block {
    void* pointer = nullptr;
    int64_t bytes = 0;
  };
  A& allocator_;
  const Stream stream_;
  const uint32_t seed_;
  Block blocks_[64];
};

// Returns the calls per second of all threads together, each with worker_of(thread): the median of five turns
// after a warm one. run() of a worker returns its calls, the same number in every turn and thread.
template <typename WorkerOf>
double calls_a_second(size_t threads, const WorkerOf& worker_of) {
  constexpr int kTurns = 6;
  std::vector<double> rates;
  std::atomic<int64_t> calls = 0;
  Clock::time_point begin;
  bool starts = true;
  const auto note_time = [&]() noexcept {
    if (!starts) rates.push_back(static_cast<double>(calls.exchange(0)) / ns_since(begin) * 1e9);
    starts = !starts;
    begin = Clock::now();
  };
  std::barrier all(static_cast<std::ptrdiff_t>(threads), note_time);
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      auto worker = worker_of(i);
      for (int turn = 0; turn < kTurns; ++turn) {
        all.arrive_and_wait();
        calls += worker.run();
        all.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  rates.erase(rates.begin());
  return median(rates);
}

}  // namespace headroom
