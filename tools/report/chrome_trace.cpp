#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tools/report/views.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

class Clock {
 public:
  explicit Clock(const Trace& trace)
      : trace_(trace),
        first_ns_(trace.events.empty() ? 0 : trace.events.front().time_ns),
        timed_(!trace.events.empty() && trace.events.back().time_ns > first_ns_) {}

  // The time after `event` events, in microseconds.
  double us(int64_t event) const {
    if (!timed_) return static_cast<double>(event);
    const size_t at = std::min(static_cast<size_t>(std::max<int64_t>(event, 1)), trace_.events.size()) - 1;
    return (static_cast<double>(trace_.events[at].time_ns) - static_cast<double>(first_ns_)) / 1e3;
  }

 private:
  const Trace& trace_;
  int64_t first_ns_;
  bool timed_;
};

void add_counters(const History& history, const Clock& clock, Json& events) {
  for (const MemorySample& sample : history.samples) {
    Json live;
    for (size_t i = 0; i < kCategories; ++i) live[std::string(kMemoryCategoryNames[i])] = sample.bytes[i];
    live["context and libraries"] = sample.library_bytes;
    events.push_back({{"name", "live bytes"},
                      {"ph", "C"},
                      {"pid", 1},
                      {"ts", clock.us(sample.event)},
                      {"args", std::move(live)}});
    if (!history.peak_reserved_bytes) continue;
    events.push_back({{"name", "reserved bytes"},
                      {"ph", "C"},
                      {"pid", 1},
                      {"ts", clock.us(sample.event)},
                      {"args", {{"reserved", sample.reserved_bytes}}}});
  }
}

void add_blocks(const History& history, const Clock& clock, Json& events) {
  const Trace& trace = history.trace;
  for (const size_t block : choose_blocks(history)) {
    const TraceEvent& allocation = history.allocation(block);
    const Lifetime& life = history.lifetimes[block];
    const std::string& tensor = history.tensor(block);
    Json span = {{"name", tensor.empty() ? "block" : tensor},
                 {"cat", kMemoryCategoryNames[static_cast<size_t>(trace.block_facts[block].category)]},
                 {"ph", "b"},
                 {"id", block},
                 {"pid", 1},
                 {"tid", allocation.stream},
                 {"ts", clock.us(life.begin)}};
    Json end = span;
    end["ph"] = "e";
    end["ts"] = clock.us(life.end);
    span["args"] = {
        {"bytes", allocation.bytes}, {"op", history.op(block)}, {"source", history.source(block)}};
    events.push_back(std::move(span));
    events.push_back(std::move(end));
  }
}

}  // namespace

std::string chrome_trace(const History& history) {
  const Trace& trace = history.trace;
  const Clock clock(trace);
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", trace.name}}}});
  add_counters(history, clock, events);
  add_blocks(history, clock, events);
  for (const DeviceEvent& event : trace.device_events) {
    const bool failed = event.kind == DeviceEvent::Kind::kOutOfMemory;
    if (!failed && event.kind != DeviceEvent::Kind::kRetry) continue;
    events.push_back(
        {{"name", failed ? "out of memory" : "retry"},
         {"ph", "i"},
         {"s", "g"},
         {"pid", 1},
         {"tid", event.stream},
         {"ts", clock.us(event.position)},
         {"args", {{"bytes", event.bytes}, {"op", trace.names[static_cast<size_t>(event.op)]}}}});
  }
  const Json json = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return json_text(json);
}

}  // namespace headroom::report
