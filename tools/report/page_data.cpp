#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/report/address_map.h"
#include "tools/report/views.h"

namespace headroom::report {
namespace {

using Json = nlohmann::ordered_json;

// A page of a million events stays below three megabytes.
constexpr size_t kMaxSegments = 4'000, kMaxMarks = 500;
constexpr size_t kMaxNameBytes = 160;

// The names in use, numbered in the order of their first use.
class Names {
 public:
  explicit Names(const History& history) : history_(history) { list_.push_back(""); }

  size_t of(int32_t name, bool is_source = false) {
    if (name == 0) return 0;
    const auto [at, added] = numbers_.try_emplace(name, list_.size());
    if (added) {
      const std::string& text = history_.trace.names[static_cast<size_t>(name)];
      const std::string shown = is_source ? history_.short_source(text) : text;
      list_.push_back(shown.size() <= kMaxNameBytes ? shown : shown.substr(0, kMaxNameBytes) + "...");
    }
    return at->second;
  }
  Json take() { return std::move(list_); }

 private:
  const History& history_;
  std::unordered_map<int32_t, size_t> numbers_;
  Json list_ = Json::array();
};

Json samples_of(const History& history) {
  Json event = Json::array(), time = Json::array(), reserved = Json::array(), bytes = Json::array();
  for (const MemorySample& sample : history.samples) {
    event.push_back(sample.event);
    time.push_back(sample.time_ns);
    reserved.push_back(sample.reserved_bytes);
  }
  for (size_t category = 0; category < kCategories; ++category) {
    Json of_category = Json::array();
    for (const MemorySample& sample : history.samples) of_category.push_back(sample.bytes[category]);
    bytes.push_back(std::move(of_category));
  }
  return {{"event", event}, {"time", time}, {"reserved", reserved}, {"bytes", bytes}};
}

Json blocks_of(const History& history, const AddressMap& map, Names& names) {
  Json columns;
  for (const char* key : {"at", "bytes", "taken", "begin", "end", "op", "tensor", "source", "category"}) {
    columns[key] = Json::array();
  }
  for (const size_t block : choose_blocks(history)) {
    const TraceEvent& allocation = history.allocation(block);
    const TraceBlock& facts = history.trace.block_facts[block];
    columns["at"].push_back(map.offset(block));
    columns["bytes"].push_back(allocation.bytes);
    columns["taken"].push_back(history.block_bytes(block));
    columns["begin"].push_back(history.lifetimes[block].begin);
    columns["end"].push_back(history.lifetimes[block].end);
    columns["op"].push_back(names.of(allocation.op));
    columns["tensor"].push_back(names.of(allocation.tag));
    columns["source"].push_back(names.of(facts.source, true));
    columns["category"].push_back(static_cast<int>(facts.category));
  }
  return columns;
}

Json segments_of(const History& history, const AddressMap& map) {
  std::vector<const Segment*> segments;
  for (const Segment& segment : history.segments) segments.push_back(&segment);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment* a, const Segment* b) { return a->bytes > b->bytes; });
  segments.resize(std::min(segments.size(), kMaxSegments));
  Json list = Json::array();
  for (const Segment* segment : segments) {
    list.push_back(
        {map.offset_of_address(segment->address), segment->bytes, segment->held.begin, segment->held.end});
  }
  return list;
}

Json marks_of(const History& history, Names& names) {
  Json list = Json::array();
  for (const DeviceEvent& event : history.trace.device_events) {
    const bool failed = event.kind == DeviceEvent::Kind::kOutOfMemory;
    if ((!failed && event.kind != DeviceEvent::Kind::kRetry) || list.size() == kMaxMarks) continue;
    list.push_back({{"kind", failed ? "out of memory" : "retry"},
                    {"event", event.position},
                    {"bytes", event.bytes},
                    {"op", names.of(event.op)},
                    {"tensor", names.of(event.tag)},
                    {"source", names.of(event.source, true)}});
  }
  return list;
}

}  // namespace

std::string page_data(const History& history) {
  const Trace& trace = history.trace;
  const AddressMap map(history);
  Names names(history);
  Json json;
  json["name"] = trace.name;
  json["format"] = trace.format;
  json["settings"] = Json::array();
  for (const auto& [name, value] : trace.settings) json["settings"].push_back({name, value});
  json["categories"] = kMemoryCategoryNames;
  json["events"] = trace.events.size();
  json["blockCount"] = trace.blocks;
  json["cutOff"] = trace.cut_off;
  json["unfolded"] = !trace.parts.empty();
  json["peak"] = history.peak_bytes;
  json["allocatedAtPeak"] = history.allocated_at_peak;
  json["peakSample"] = history.peak_sample;
  json["reservedPeak"] = history.peak_reserved_bytes ? Json(*history.peak_reserved_bytes) : Json();
  json["fragmentation"] = history.fragmentation ? Json(*history.fragmentation) : Json();
  json["outOfMemory"] = history.out_of_memory;
  json["retries"] = history.retries;
  json["driverCalls"] = history.knows_driver ? Json(history.driver_calls) : Json();
  json["mapBytes"] = map.bytes();
  json["hasAddresses"] = trace.has_addresses;
  json["samples"] = samples_of(history);
  json["blocks"] = blocks_of(history, map, names);
  json["segments"] = segments_of(history, map);
  json["marks"] = marks_of(history, names);
  json["names"] = names.take();
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {  // only strings contain '<'
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace headroom::report
