// What `headroom replay --snapshot-at` prints: the segments and blocks that strategies hold at one event.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "allocators/strategies/strategy.h"
#include "allocators/trace/trace.h"
#include "runtime/base/terminal.h"
#include "runtime/device/host/profiles.h"

namespace headroom {

// The event that `text` names: a number from 1 on, "peak" (where most is live) or "end". Throws
// InvalidArgument for anything else, and for an event behind the trace's last.
int64_t snapshot_event(const std::string& text, const Trace& trace);

// Each strategy's state after that event of each trace, in one capacity; as JSON with exact bytes.
void print_snapshots(std::span<const Trace> traces, std::span<const std::string> strategies,
                     const DeviceProfile& profile, int64_t capacity_bytes, const std::string& event,
                     bool json, const Terminal& terminal);

}  // namespace headroom
