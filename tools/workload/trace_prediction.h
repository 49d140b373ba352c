// Whether a recorded or traced program fits on a device under a strategy, by how much, and what takes the
// memory. Knows no command line and no file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/replay/replay.h"
#include "base/edge.h"
#include "base/memory_category.h"
#include "runtime/app/setup.h"
#include "trace/trace.h"

namespace headroom {

// What is live of one module, or was asked for by one line.
struct MemoryShare {
  std::string name;
  int64_t bytes = 0;
};

inline constexpr std::string_view kNoModule = "no module", kNoLine = "no line";

// The live set of a trace when it is largest.
struct LiveSet {
  std::array<int64_t, kMemoryCategoryNames.size()> by_category{};
  // The largest first. What the trace names no module, or no line, for comes last, as kNoModule or kNoLine:
  // the shares add up to all that is live. Empty where it names none at all. Weights, gradients and optimizer
  // state count for the module that has their parameter, as "layers.0.linear" of "layers.0.linear.weight".
  std::vector<MemoryShare> by_module, by_line;
  std::string where;  // the allocation that made it the largest: what, its module and line
};
LiveSet largest_live_set(const Trace& trace);

// The parts of an allocation of a trace that are known: "aten::convolution in layer1.conv2 at train.py:31".
std::string event_text(const Trace& trace, const TraceEvent& event);
// The same of the event at that position; where the trace does not know its line, also the step, its phase
// and the last line before: "step 26, backward, after train.py:31".
std::string place_text(const Trace& trace, int64_t position);

struct TracePrediction {
  bool fits = false;
  // How much smaller the device (or the limit, where that binds first) could be; negative: how much it lacks.
  // Nothing when it was not searched for, or when it fits on no device.
  std::optional<int64_t> margin_bytes;
  // The process at its peak, as the driver sees it, and its parts; when it does not fit, on the smallest
  // device on which it does, or 0 where that was not searched for.
  int64_t total_bytes = 0, context_bytes = 0, library_bytes = 0;
  int64_t reserved_bytes = 0, allocated_bytes = 0, requested_bytes = 0;
  std::string reason;                   // why it does not fit, one line
  std::optional<MemoryFacts> facts;     // of the request without room
  std::optional<int64_t> failed_event;  // its number, from 1 on; 0: the pool itself
};

// A setup for a program that starts context and libraries and then allocates as a trace does.
class TracePredictor {
 public:
  // Throws InvalidArgument for a setup without a GPU. `trace` must outlive this.
  TracePredictor(const Trace& trace, RunSetup setup);

  // What the strategies may take of the device: all but what others, the context and libraries hold.
  int64_t capacity_bytes() const { return capacity_of_total(total_bytes_); }
  // Under the strategy of the setup, with the margin.
  TracePrediction predict() const;
  // The same without the margin, and where it does not fit without what it would take: in a single pass.
  TracePrediction outcome() const;
  // Under another one, in a single pass: without the margin. Nothing where it cannot take the trace.
  std::optional<TracePrediction> predict_with(const std::string& strategy) const;
  // Whether the strategy of the setup fits when `margin_bytes` of the device stay free.
  bool fits(int64_t margin_bytes = 0) const;
  // What the strategy of the setup could give back to the driver before that event (counted from 0): segments
  // without a live block.
  int64_t releasable_bytes_before(int64_t event) const;
  // The least total of the device on which it fits, see Predictor::least_total_bytes. On a long trace less
  // may do (see SearchWork).
  std::optional<int64_t> least_total_bytes() const { return least_total_bytes(nullptr); }

 private:
  // The same device without the limit, and with `withheld_bytes` less of it instead.
  TracePredictor(const TracePredictor& limited, int64_t withheld_bytes);

  int64_t capacity_of_total(int64_t total_bytes) const;
  // What the limit of the strategy withholds of the device; 0 without one that binds.
  int64_t withheld_bytes() const;
  ReplayResult play(const StrategySettings& settings, int64_t total_bytes) const;
  TracePrediction outcome(std::optional<ReplayResult>& played) const;
  EdgeTrial attempt_with_total(int64_t total_bytes) const;
  EdgeTrial trial_of(const ReplayResult& played) const;
  // `now`: what was played with the present total; null: nothing.
  std::optional<int64_t> least_total_bytes(const ReplayResult* now) const;
  void note_peaks(const ReplayResult& played, TracePrediction& prediction) const;

  const Trace& trace_;
  const RunSetup setup_;
  const StrategySettings settings_;
  const int64_t total_bytes_, others_bytes_;
};

}  // namespace headroom
