// Memory over time from a trace, computed once for every view: samples, lifetimes, the peak, driver calls.
// Knows no file format and no output.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace headroom::report {

inline constexpr size_t kCategories = kMemoryCategoryNames.size();

// The state after `event` events. Each sample is the fullest moment since the sample before it.
struct MemorySample {
  int64_t event = 0;
  int64_t time_ns = 0;
  std::array<int64_t, kCategories> bytes{};  // live bytes as requested
  int64_t library_bytes = 0;                 // context, libraries and their kernels, as the driver reports
  int64_t live_bytes = 0;                    // without context and libraries
  int64_t reserved_bytes = 0;
};

// [begin, end) in events. `end` is the number of events + 1 for a block that is never freed.
struct Lifetime {
  int64_t begin = 0, end = 0;

  bool has(int64_t event) const { return begin <= event && event < end; }
};

struct Segment {
  uint64_t address = 0;
  int64_t bytes = 0;
  Lifetime held;
  // Positions in Trace::device_events; they tell apart what happened between the same two events.
  size_t reserved = 0, returned = SIZE_MAX;
};

struct History {
  static constexpr int64_t kMaxSamples = 1200;

  explicit History(const Trace& trace);

  const Trace& trace;
  std::vector<Lifetime> lifetimes;  // by block
  std::vector<MemorySample> samples;
  size_t peak_sample = 0;  // the first with most live bytes
  std::vector<Segment> segments;

  int64_t peak_bytes = 0;         // live, as requested
  int64_t allocated_at_peak = 0;  // after rounding to blocks
  int64_t library_bytes = 0;      // peak of context, libraries and kernels
  int64_t live_at_end_bytes = 0;  // never freed
  int64_t out_of_memory = 0, retries = 0, driver_calls = 0;
  bool knows_driver = false;                   // the trace records driver calls
  std::optional<int64_t> peak_reserved_bytes;  // absent if the trace does not record all of it
  // Pieces of reserved memory that are not in use.
  struct Idle {
    int64_t reserved_bytes = 0;  // with what is in use
    int64_t bytes = 0, largest_bytes = 0, pieces = 0;
  };
  std::optional<Idle> idle_at_peak;     // absent if the trace has no addresses
  std::optional<double> fragmentation;  // share of it outside the largest piece, as in Statistics

  int64_t peak_event() const { return samples[peak_sample].event; }
  // The number of the event in the file.
  int64_t recorded_peak_event() const {
    const int64_t event = peak_event();
    return event == 0 || !is_unfolded() ? event : trace.unfolded_from[static_cast<size_t>(event - 1)];
  }
  bool is_unfolded() const { return !trace.unfolded_from.empty(); }
  bool is_live(size_t block, int64_t event) const { return lifetimes[block].has(event); }
  int64_t bytes(size_t block) const { return trace.events[allocation_[block]].bytes; }
  // After rounding by the strategy, if known.
  int64_t block_bytes(size_t block) const {
    return std::max(trace.block_facts[block].block_bytes, bytes(block));
  }
  const TraceEvent& allocation(size_t block) const { return trace.events[allocation_[block]]; }
  // The blocks that are live after `event` events, the largest first, without unfolded arenas.
  std::vector<size_t> live_blocks(int64_t event) const;
  // The idle pieces of these segments after `event` events. Empty if there are none, without addresses, and
  // for sizes that no device has.
  std::optional<Idle> find_idle(std::span<const Segment> held, int64_t event) const;
  const std::string& op(size_t block) const;
  const std::string& tensor(size_t block) const;
  // "net.cpp:31", without the folder that all source files share.
  std::string source(size_t block) const;
  // `text`, which begins with a path, without that folder or the one of installed packages.
  std::string short_source(const std::string& text) const;

 private:
  class Walk;

  std::vector<size_t> allocation_;  // by block: index of its event
  std::string shared_folder_;       // with its '/'
};

// The blocks that a view draws one by one, at most 20,000, in the order of their allocation: those that are
// live at the peak, the largest first, then the others by bytes x lifetime.
std::vector<size_t> choose_blocks(const History& history);

}  // namespace headroom::report
