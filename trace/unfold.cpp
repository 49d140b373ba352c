#include "trace/unfold.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace headroom {
namespace {

class Unfolding {
 public:
  explicit Unfolding(Trace& trace) : trace_(trace) {}

  void run() {
    const std::vector<TraceEvent> events = std::exchange(trace_.events, {});
    const std::vector<TraceBlock> facts = std::exchange(trace_.block_facts, {});
    std::vector<int32_t> numbers(facts.size());  // old block number -> new one
    std::vector<bool> has_parts(facts.size());
    std::vector<int64_t> positions(events.size() + 1);
    std::span<const TracePart> parts = trace_.parts;
    for (size_t at = 0; at < events.size(); ++at) {
      positions[at] = static_cast<int64_t>(trace_.events.size());
      trace_.unfolded_from.resize(trace_.events.size(), static_cast<int64_t>(at));
      TraceEvent event = events[at];
      const auto block = static_cast<size_t>(event.block);
      size_t count = 0;
      if (event.allocates) {
        while (count < parts.size() && parts[count].block == event.block) ++count;
        has_parts[block] = count > 0;
        numbers[block] = static_cast<int32_t>(trace_.block_facts.size());
        trace_.block_facts.push_back(facts[block]);
        if (has_parts[block])
          trace_.block_facts.back().block_bytes = std::max(facts[block].block_bytes, event.bytes);
      }
      event.block = numbers[block];
      if (has_parts[block]) event.bytes = 0;
      add(event);
      add_parts(parts.first(count), event);
      parts = parts.subspan(count);
    }
    positions.back() = static_cast<int64_t>(trace_.events.size());
    trace_.unfolded_from.resize(trace_.events.size(), static_cast<int64_t>(events.size()));
    for (DeviceEvent& event : trace_.device_events)
      event.position = positions[static_cast<size_t>(event.position)];
    for (TraceMark& mark : trace_.marks) mark.position = positions[static_cast<size_t>(mark.position)];
    trace_.blocks = static_cast<int64_t>(trace_.block_facts.size());
  }

 private:
  void add(const TraceEvent& event) {
    trace_.events.push_back(event);
    live_bytes_ += event.allocates ? event.bytes : -event.bytes;
    if (live_bytes_ <= peak_bytes_) return;
    trace_.peak_bytes = peak_bytes_ = live_bytes_;
    trace_.peak_event = static_cast<int64_t>(trace_.events.size()) - 1;
  }

  void add_parts(std::span<const TracePart> parts, const TraceEvent& of) {
    // Position in the pass, true for an allocation, index of the part. At one position frees come first.
    std::vector<std::tuple<int64_t, bool, size_t>> changes;
    for (size_t i = 0; i < parts.size(); ++i) {
      changes.emplace_back(parts[i].first, true, i);
      changes.emplace_back(parts[i].end, false, i);
    }
    std::ranges::sort(changes);
    std::vector<int32_t> numbers(parts.size());
    for (const auto& [position, allocates, i] : changes) {
      const TracePart& part = parts[i];
      if (allocates) {
        numbers[i] = static_cast<int32_t>(trace_.block_facts.size());
        trace_.block_facts.push_back(
            {.address = part.address, .source = part.source, .category = part.category, .is_part = true});
      }
      add({.allocates = allocates,
           .block = numbers[i],
           .bytes = part.bytes,
           .stream = of.stream,
           .op = part.op,
           .tag = part.tag,
           .time_ns = of.time_ns});
    }
  }

  Trace& trace_;
  int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

Trace unfold(Trace trace) {
  if (!trace.parts.empty()) Unfolding(trace).run();
  trace.parts.clear();
  return trace;
}

}  // namespace headroom
