#include "tools/workload/recorded_failure.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "allocators/strategies/caching_rules.h"
#include "trace/categorize.h"

namespace headroom {
namespace {

using Kind = DeviceEvent::Kind;

// No device has more. A prediction multiplies it.
constexpr int64_t kLargestDeviceBytes = int64_t{1} << 50;

// Calls `on_failure(event, reserved)` for each request that failed with a known free memory. The reserved
// bytes follow from the driver's allocations and releases. Returns their maximum.
template <typename OnFailure>
int64_t follow_reserved(const Trace& trace, const OnFailure& on_failure) {
  const auto is_known = [](int64_t bytes) { return bytes > 0 && bytes <= kLargestDeviceBytes; };
  int64_t reserved = 0, most = 0;
  for (const DeviceEvent& event : trace.device_events) {
    const int64_t bytes = std::min(event.bytes, kLargestDeviceBytes);
    if (event.kind == Kind::kReserve) reserved = std::min(reserved + bytes, kLargestDeviceBytes);
    if (event.kind == Kind::kUnreserve) reserved = std::max<int64_t>(0, reserved - bytes);
    most = std::max(most, reserved);
    if (event.kind == Kind::kOutOfMemory && is_known(event.free_bytes) && is_known(reserved)) {
      on_failure(event, reserved);
    }
  }
  return most;
}

// Returns PyTorch's request to the driver: no other recording has the free memory of a failure.
int64_t driver_bytes(const DeviceEvent& failed) {
  const CachingRules rules;
  return rules.segment_bytes(rules.block_bytes(failed.bytes));
}

bool is_request(const DeviceEvent& event) {
  return event.bytes > 0 && event.bytes <= Trace::kLargestBlockBytes;
}

}  // namespace

Trace until_request(const Trace& trace, int64_t event, int64_t bytes, const DeviceEvent& request) {
  Trace played = trace;
  const auto is_later = [&](const auto& other) { return other.position > event; };
  played.events.resize(static_cast<size_t>(event));
  std::erase_if(played.marks, is_later);
  std::erase_if(played.device_events, is_later);
  played.parts.clear();
  played.events.push_back({.block = static_cast<int32_t>(played.blocks++),
                           .bytes = bytes,
                           .stream = request.stream,
                           .op = request.op,
                           .tag = request.tag,
                           .time_ns = request.time_ns});
  played.block_facts.push_back({.source = request.source,
                                .module = request.module,
                                .stack = request.stack,
                                .category = request.category,
                                .rule = request.rule});
  played.peak_bytes = played.peak_event = 0;
  int64_t live = 0;
  for (size_t i = 0; i < played.events.size(); ++i) {
    live += played.events[i].allocates ? played.events[i].bytes : -played.events[i].bytes;
    if (live <= played.peak_bytes) continue;
    played.peak_bytes = live;
    played.peak_event = static_cast<int64_t>(i);
  }
  return played;
}

Trace with_failed_request(Trace trace) {
  const DeviceEvent* const failed = fatal_failure(trace);
  if (failed == nullptr || !is_request(*failed)) return trace;
  return until_request(trace, failed->position, failed->bytes, *failed);
}

bool ends_in_failure(const Trace& trace) {
  if (trace.events.empty() || trace.device_events.empty()) return false;
  const TraceEvent& request = trace.events.back();
  const DeviceEvent& failed = trace.device_events.back();
  return failed.kind == Kind::kOutOfMemory && failed.position == std::ssize(trace.events) - 1 &&
         request.allocates && request.bytes == failed.bytes;
}

std::optional<int64_t> recorded_room_bytes(const Trace& trace) {
  std::optional<int64_t> bytes;
  follow_reserved(trace,
                  [&](const DeviceEvent& failed, int64_t reserved) { bytes = failed.free_bytes + reserved; });
  return bytes;
}

std::optional<RecordedLimit> recorded_limit(const Trace& trace) {
  std::optional<RecordedLimit> limit;
  const int64_t most = follow_reserved(trace, [&](const DeviceEvent& failed, int64_t reserved) {
    if (!is_request(failed) || driver_bytes(failed) > failed.free_bytes) return;
    const int64_t below = reserved + driver_bytes(failed);
    limit = {.at_least_bytes = 0,
             .below_bytes = limit ? std::min(below, limit->below_bytes) : below,
             .requested_bytes = failed.bytes,
             .free_bytes = failed.free_bytes};
  });
  if (limit) {
    limit->at_least_bytes = most;
    limit->below_bytes = std::max(most, limit->below_bytes);
  }
  return limit;
}

}  // namespace headroom
