#include "tools/replay/replay_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/table.h"
#include "base/text.h"
#include "trace/read_trace.h"

namespace headroom {
namespace {

using State = SnapshotBlock::State;

constexpr std::string_view kStates[] = {"active", "pending", "free"};
constexpr size_t kMaxSegments = 20;  // that are printed, the largest
constexpr size_t kMaxUsers = 10;
constexpr int64_t kMapWidth = 40;

int64_t bytes_of(const SnapshotSegment& segment, State state) {
  int64_t bytes = 0;
  for (const SnapshotBlock& block : segment.blocks) {
    if (block.state == state) bytes += block.bytes;
  }
  return bytes;
}

// One character for each fortieth of a segment: '#' where all of it is in use, '+' a part, '.' nothing.
std::string map_of(const SnapshotSegment& segment) {
  std::vector<double> used(kMapWidth);
  const double width = static_cast<double>(segment.bytes) / kMapWidth;
  double begin = 0;
  for (const SnapshotBlock& block : segment.blocks) {
    const double end = begin + static_cast<double>(block.bytes);
    for (auto cell = static_cast<int64_t>(begin / width);
         block.state != State::kFree && cell < kMapWidth && static_cast<double>(cell) * width < end; ++cell) {
      const double from = std::max(begin, static_cast<double>(cell) * width);
      const double to = std::min(end, static_cast<double>(cell + 1) * width);
      used[static_cast<size_t>(cell)] += std::max(0.0, to - from) / width;
    }
    begin = end;
  }
  std::string map;
  for (const double share : used) map += share > 0.999 ? '#' : share > 0.001 ? '+' : '.';
  return map;
}

std::string address_of(const void* pointer) {
  return pointer == nullptr ? "none" : fmt::format("{}", fmt::ptr(pointer));
}

std::string user_of(const SnapshotBlock& block) {
  std::string op = printable(block.op), tensor = printable(block.tensor);
  if (op.empty()) return tensor;
  return tensor.empty() ? op : op + " " + tensor;
}

std::string verdict(const PlayedSnapshot& at) {
  const Statistics& now = at.snapshot.statistics;
  if (at.event == 0) return "cannot start";
  return fmt::format("{} event {}: {} reserved, {} allocated, {} requested, fragmentation {:.3f}",
                     at.out_of_memory ? "out of memory at" : "after", at.event,
                     format_bytes(now.reserved.current), format_bytes(now.allocated.current),
                     format_bytes(now.requested.current), now.fragmentation());
}

void print_segments(const Snapshot& snapshot, const Terminal& terminal) {
  std::vector<const SnapshotSegment*> segments;
  for (const SnapshotSegment& segment : snapshot.segments) segments.push_back(&segment);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  Table table({{"segment"},
               {.title = "MiB", .is_number = true},
               {.title = "active", .is_number = true},
               {.title = "pending", .is_number = true, .drop = 2},
               {.title = "free", .is_number = true},
               {.title = "blocks", .is_number = true, .drop = 3},
               {.title = "in use #, in part +, free .", .drop = 1}});
  for (size_t i = 0; i < std::min(kMaxSegments, segments.size()); ++i) {
    const SnapshotSegment& segment = *segments[i];
    table.add({address_of(segment.pointer), format_mib(segment.bytes),
               format_mib(bytes_of(segment, State::kActive)), format_mib(bytes_of(segment, State::kPending)),
               format_mib(bytes_of(segment, State::kFree)), fmt::format("{}", segment.blocks.size()),
               map_of(segment)});
  }
  fmt::print("\n{}", table.text(terminal));
  if (segments.size() > kMaxSegments) {
    fmt::print("and {} smaller segments\n", segments.size() - kMaxSegments);
  }
}

void print_users(const Snapshot& snapshot, const Terminal& terminal) {
  std::vector<const SnapshotBlock*> live;
  for (const SnapshotSegment& segment : snapshot.segments) {
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == State::kActive) live.push_back(&block);
    }
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const auto* a, const auto* b) { return a->requested_bytes > b->requested_bytes; });
  if (live.empty()) return;
  Table table({{"largest blocks"},
               {.title = "MiB", .is_number = true},
               {.title = "requested", .is_number = true},
               {.title = "of", .wraps = true}});
  for (size_t i = 0; i < std::min(kMaxUsers, live.size()); ++i) {
    table.add({address_of(live[i]->pointer), format_mib(live[i]->bytes), format_mib(live[i]->requested_bytes),
               user_of(*live[i])});
  }
  fmt::print("\n{}", table.text(terminal));
}

nlohmann::ordered_json to_json(const Gauge& gauge) {
  return {{"current", gauge.current}, {"peak", gauge.peak}, {"total", gauge.total}};
}

nlohmann::ordered_json to_json(const Statistics& now) {
  nlohmann::ordered_json json;
  json["requested_bytes"] = to_json(now.requested);
  json["allocated_bytes"] = to_json(now.allocated);
  json["active_bytes"] = to_json(now.active);
  json["reserved_bytes"] = to_json(now.reserved);
  json["allocations"] = now.allocations;
  json["deallocations"] = now.deallocations;
  json["driver_allocations"] = now.driver_allocations;
  json["driver_releases"] = now.driver_releases;
  json["driver_mappings"] = now.driver_mappings;
  json["retries"] = now.retries;
  json["failures"] = now.failures;
  json["stream_waits"] = now.stream_waits;
  json["largest_free_block_bytes"] = now.largest_free_block;
  json["fragmentation"] = now.fragmentation();
  return json;
}

nlohmann::ordered_json to_json(const SnapshotSegment& segment) {
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  nlohmann::ordered_json json{{"address", address(segment.pointer)}, {"bytes", segment.bytes}};
  json["blocks"] = nlohmann::ordered_json::array();
  for (const SnapshotBlock& block : segment.blocks) {
    nlohmann::ordered_json row{{"address", address(block.pointer)},
                               {"bytes", block.bytes},
                               {"requested_bytes", block.requested_bytes},
                               {"state", kStates[static_cast<size_t>(block.state)]}};
    row["stream"] = nullptr;
    if (block.stream) row["stream"] = address(block.stream->handle);
    row["op"] = block.op;
    row["tensor"] = block.tensor;
    json["blocks"].push_back(std::move(row));
  }
  return json;
}

}  // namespace

int64_t ReplayRoom::capacity_bytes() const {
  return std::min(device_bytes, limit_bytes.value_or(device_bytes));
}

StrategySettings ReplayRoom::limited(StrategySettings settings) const {
  if (!settings.limit_bytes && !settings.memory_fraction) settings.limit_bytes = limit_bytes;
  return settings;
}

int64_t snapshot_event(const std::string& text, const Trace& trace) {
  const auto events = static_cast<int64_t>(trace.events.size());
  if (text == "peak") return trace.peak_event + 1;
  if (text == "end") return events;
  int64_t event = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), event);
  if (error != std::errc() || end != text.data() + text.size() || event < 1 || event > events) {
    throw InvalidArgument(fmt::format(
        "--snapshot-at {}: it must be peak, end, or an event of {} from 1 to {}", text, trace.name, events));
  }
  return event;
}

void print_snapshots(std::span<const Trace> traces, std::span<const std::string> strategies,
                     const DeviceProfile& profile, const ReplayRoom& room, const std::string& event,
                     bool json, const Terminal& terminal) {
  for (const Trace& trace : traces) snapshot_event(event, trace);  // nothing is printed when one is refused
  nlohmann::ordered_json all;
  all["snapshots"] = nlohmann::ordered_json::array();
  for (const Trace& trace : traces) {
    for (const std::string& strategy : strategies) {
      const PlayedSnapshot at =
          snapshot_after(trace,
                         setup_of_capacity(profile, room.limited(prepared_for(trace, parse_strategy(strategy))),
                                           room.device_bytes),
                         snapshot_event(event, trace));
      if (!json) {
        fmt::print("{} with {}, {}\n", printable(trace.name), strategy, verdict(at));
        if (!at.snapshot.segments.empty()) {
          print_segments(at.snapshot, terminal);
          print_users(at.snapshot, terminal);
        }
        fmt::print("\n");
        continue;
      }
      nlohmann::ordered_json row{{"trace", trace.name},
                                 {"strategy", strategy},
                                 {"capacity_bytes", room.capacity_bytes()},
                                 {"event", at.event},
                                 {"out_of_memory", at.out_of_memory}};
      row["statistics"] = to_json(at.snapshot.statistics);
      row["segments"] = nlohmann::ordered_json::array();
      for (const SnapshotSegment& segment : at.snapshot.segments) row["segments"].push_back(to_json(segment));
      all["snapshots"].push_back(std::move(row));
    }
  }
  if (json) {
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    const std::string& name = traces.front().name;
    fmt::print("next: headroom replay {} --snapshot-at {} --json\n",
               shell_word(std::string_view(name).substr(0, name.rfind("#device"))), event);
  }
}

}  // namespace headroom
