#include "tools/replay/replay_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "allocators/strategies/strategy_text.h"
#include "answers/play.h"
#include "base/bytes.h"
#include "base/errors.h"
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

// One character for each fortieth of a segment: '#' if all of it is in use, '+' if a part is, '.' if nothing
// is.
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

std::string verdict(const Prediction& played, int64_t event, const Statistics& now) {
  if (event == 0) return "cannot start";
  return fmt::format("{} event {}: {} reserved, {} allocated, {} requested, fragmentation {:.3f}",
                     played.fits ? "after" : "out of memory at", event, format_bytes(now.reserved.current),
                     format_bytes(now.allocated.current), format_bytes(now.requested.current),
                     now.fragmentation());
}

void add_segments(Sheet& sheet, const Snapshot& snapshot) {
  std::vector<const SnapshotSegment*> segments;
  for (const SnapshotSegment& segment : snapshot.segments) segments.push_back(&segment);
  std::ranges::stable_sort(segments, [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  SheetTable& table = sheet.table({.columns = {{"segment"},
                                               {"MiB", "", kMib},
                                               {"active", "", kMib},
                                               {"pending", "", kMib, 2},
                                               {"free", "", kMib},
                                               {"blocks", "", kNumber, 3},
                                               {"in use #, in part +, free .", "", kText, 1}}});
  for (size_t i = 0; i < std::min(kMaxSegments, segments.size()); ++i) {
    const SnapshotSegment& segment = *segments[i];
    table.add({address_of(segment.pointer), segment.bytes, bytes_of(segment, State::kActive),
               bytes_of(segment, State::kPending), bytes_of(segment, State::kFree), segment.blocks.size(),
               map_of(segment)});
  }
  if (segments.size() > kMaxSegments)
    sheet.note(fmt::format("and {} smaller segments", segments.size() - kMaxSegments));
}

void add_users(Sheet& sheet, const Snapshot& snapshot) {
  std::vector<const SnapshotBlock*> live;
  for (const SnapshotSegment& segment : snapshot.segments) {
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == State::kActive) live.push_back(&block);
    }
  }
  std::ranges::stable_sort(
      live, [](const auto* a, const auto* b) { return a->requested_bytes > b->requested_bytes; });
  SheetTable& table = sheet.table(
      {.columns = {
           {"largest blocks"}, {"MiB", "", kMib}, {"requested", "", kMib}, {"of", "", kWrappedText}}});
  for (size_t i = 0; i < std::min(kMaxUsers, live.size()); ++i) {
    table.add({address_of(live[i]->pointer), live[i]->bytes, live[i]->requested_bytes, user_of(*live[i])});
  }
}

Record to_record(const Gauge& gauge) {
  return {{"current", gauge.current}, {"peak", gauge.peak}, {"total", gauge.total}};
}

Record to_record(const Statistics& now) {
  return {{"requested_bytes", to_record(now.requested)},
          {"allocated_bytes", to_record(now.allocated)},
          {"active_bytes", to_record(now.active)},
          {"reserved_bytes", to_record(now.reserved)},
          {"allocations", now.allocations},
          {"deallocations", now.deallocations},
          {"driver_allocations", now.driver_allocations},
          {"driver_releases", now.driver_releases},
          {"driver_mappings", now.driver_mappings},
          {"retries", now.retries},
          {"failures", now.failures},
          {"stream_waits", now.stream_waits},
          {"largest_free_block_bytes", now.largest_free_block},
          {"fragmentation", now.fragmentation()}};
}

Record to_record(const SnapshotSegment& segment) {
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  List blocks;
  for (const SnapshotBlock& block : segment.blocks) {
    blocks.push_back(Record{{"address", address(block.pointer)},
                            {"bytes", block.bytes},
                            {"requested_bytes", block.requested_bytes},
                            {"state", kStates[static_cast<size_t>(block.state)]},
                            {"stream", block.stream ? Datum(address(block.stream->handle)) : Datum()},
                            {"op", block.op},
                            {"tensor", block.tensor}});
  }
  return {{"address", address(segment.pointer)}, {"bytes", segment.bytes}, {"blocks", std::move(blocks)}};
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
  const auto event = parse_number<int64_t>(text);
  if (!event || *event < 1 || *event > events) {
    throw InvalidArgument(fmt::format(
        "--snapshot-at {}: it must be peak, end, or an event of {} from 1 to {}", text, trace.name, events));
  }
  return *event;
}

Sheet show_snapshots(std::span<const Trace> traces, std::span<const std::string> strategies,
                     const DeviceProfile& profile, const ReplayRoom& room, const std::string& event) {
  for (const Trace& trace : traces) snapshot_event(event, trace);  // before any is played
  Sheet sheet;
  List snapshots;
  for (const Trace& trace : traces) {
    for (const std::string& strategy : strategies) {
      const int64_t last = snapshot_event(event, trace);
      const Prediction played =
          play(traced_here(trace),
               setup_of_capacity(profile, room.limited(prepared_for(trace, parse_strategy(strategy))),
                                 room.device_bytes),
               {.snapshot_after = last});
      const int64_t at = played.failed_event.value_or(last);
      const Snapshot snapshot = played.snapshot.value_or(Snapshot());
      sheet.fact(
          fmt::format("{} with {}, {}", trace.name, strategy, verdict(played, at, snapshot.statistics)));
      add_segments(sheet, snapshot);
      add_users(sheet, snapshot);
      List segments;
      for (const SnapshotSegment& segment : snapshot.segments) segments.emplace_back(to_record(segment));
      snapshots.push_back(Record{{"trace", trace.name},
                                 {"strategy", strategy},
                                 {"capacity_bytes", room.capacity_bytes()},
                                 {"event", at},
                                 {"out_of_memory", !played.fits},
                                 {"statistics", to_record(snapshot.statistics)},
                                 {"segments", std::move(segments)}});
    }
  }
  sheet.set("snapshots", std::move(snapshots));
  const std::string_view name = traces.front().name;
  sheet.next = {{fmt::format("headroom replay {} --snapshot-at {} --json",
                             shell_word(name.substr(0, name.rfind("#device"))), event)}};
  return sheet;
}

}  // namespace headroom
