#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/datum.h"
#include "tools/report/views.h"

namespace headroom::report {
namespace {

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

void add_counters(const History& history, const Clock& clock, List& events) {
  for (const MemorySample& sample : history.samples) {
    Record live;
    for (size_t i = 0; i < kCategories; ++i)
      live.push_back({std::string(kMemoryCategoryNames[i]), sample.bytes[i]});
    live.push_back({"context and libraries", sample.library_bytes});
    const auto add = [&](const char* name, Record values) {
      events.push_back(Record{{"name", name},
                              {"ph", "C"},
                              {"pid", 1},
                              {"ts", clock.us(sample.event)},
                              {"args", std::move(values)}});
    };
    add("live bytes", std::move(live));
    if (history.peak_reserved_bytes) add("reserved bytes", {{"reserved", sample.reserved_bytes}});
  }
}

void add_blocks(const History& history, const Clock& clock, List& events) {
  const Trace& trace = history.trace;
  for (const size_t block : choose_blocks(history)) {
    const TraceEvent& allocation = history.allocation(block);
    const Lifetime& life = history.lifetimes[block];
    const std::string& tensor = history.tensor(block);
    const auto edge = [&](const char* kind, int64_t event) {
      return Record{{"name", tensor.empty() ? "block" : tensor},
                    {"cat", kMemoryCategoryNames[static_cast<size_t>(trace.block_facts[block].category)]},
                    {"ph", kind},
                    {"id", block},
                    {"pid", 1},
                    {"tid", allocation.stream},
                    {"ts", clock.us(event)}};
    };
    Record begin = edge("b", life.begin);
    begin.push_back(
        {"args",
         Record{{"bytes", allocation.bytes}, {"op", history.op(block)}, {"source", history.source(block)}}});
    events.emplace_back(std::move(begin));
    events.emplace_back(edge("e", life.end));
  }
}

}  // namespace

std::string chrome_trace(const History& history) {
  const Trace& trace = history.trace;
  const Clock clock(trace);
  List events;
  events.push_back(
      Record{{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", Record{{"name", trace.name}}}});
  add_counters(history, clock, events);
  add_blocks(history, clock, events);
  for (const DeviceEvent& event : trace.device_events) {
    const bool failed = event.kind == DeviceEvent::Kind::kOutOfMemory;
    if (!failed && event.kind != DeviceEvent::Kind::kRetry) continue;
    events.push_back(
        Record{{"name", failed ? "out of memory" : "retry"},
               {"ph", "i"},
               {"s", "g"},
               {"pid", 1},
               {"tid", event.stream},
               {"ts", clock.us(event.position)},
               {"args", Record{{"bytes", event.bytes}, {"op", trace.names[static_cast<size_t>(event.op)]}}}});
  }
  return to_json(Record{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}, -1);
}

}  // namespace headroom::report
