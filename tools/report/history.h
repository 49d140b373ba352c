// What a trace says of memory over time, worked out once for every view: samples, lifetimes, the peak and
// what happened with the driver. Knows no file format and no output.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/trace/trace.h"

namespace headroom::report {

inline constexpr size_t kCategories = kMemoryCategoryNames.size();

// After `event` events. Of the events between two samples, the one with most live bytes stands for all.
struct MemorySample {
  int64_t event = 0;
  int64_t time_ns = 0;
  std::array<int64_t, kCategories> bytes{};  // live, as requested; library: context, libraries, kernels
  int64_t live_bytes = 0;                    // without context and libraries
  int64_t reserved_bytes = 0;
};

// [begin, end): after how many events something is there; `end` is one more than there are events if it
// stays.
struct Lifetime {
  int64_t begin = 0, end = 0;

  bool has(int64_t event) const { return begin <= event && event < end; }
};

struct Segment {
  uint64_t address = 0;
  int64_t bytes = 0;
  Lifetime held;
};

struct History {
  static constexpr int64_t kMostSamples = 1200;

  explicit History(const Trace& trace);

  const Trace& trace;
  std::vector<Lifetime> lifetimes;  // by block
  std::vector<MemorySample> samples;
  size_t peak_sample = 0;  // the first with most live bytes
  std::vector<Segment> segments;

  int64_t peak_bytes = 0;         // live, as requested
  int64_t allocated_at_peak = 0;  // the blocks for them
  int64_t library_bytes = 0;      // context, libraries and kernels at their highest
  int64_t live_at_end_bytes = 0;  // never freed
  int64_t out_of_memory = 0, retries = 0, driver_calls = 0;
  bool knows_driver = false;                   // whether the trace has the strategy's driver calls
  std::optional<int64_t> peak_reserved_bytes;  // nothing: the trace does not say, or not all
  // Share of the idle reserved bytes outside the largest free range, at the peak, as Statistics has it;
  // nothing where places are unknown.
  std::optional<double> fragmentation;

  int64_t peak_event() const { return samples[peak_sample].event; }
  bool is_live(size_t block, int64_t event) const { return lifetimes[block].has(event); }
  int64_t bytes(size_t block) const { return trace.events[allocation_[block]].bytes; }
  // What the strategy took for it, as far as is known.
  int64_t block_bytes(size_t block) const {
    return std::max(trace.block_facts[block].block_bytes, bytes(block));
  }
  const TraceEvent& allocation(size_t block) const { return trace.events[allocation_[block]]; }
  // Numbers of the blocks that are live after `event` events, the largest first; without those whose parts
  // stand for them.
  std::vector<size_t> live_blocks(int64_t event) const;
  const std::string& op(size_t block) const;
  const std::string& tensor(size_t block) const;
  // "net.cpp:31", without the folders that all of the trace's files share.
  std::string source(size_t block) const;
  // The line of `text`, a source, without those folders.
  std::string short_source(const std::string& text) const;

 private:
  class Walk;
  std::optional<double> fragmentation_at_peak() const;

  std::vector<size_t> allocation_;  // by block: position of its event
  size_t shared_folder_ = 0;        // bytes of a source's text
};

}  // namespace headroom::report
