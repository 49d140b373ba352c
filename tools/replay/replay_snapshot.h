// What `headroom replay --snapshot-at` shows: the segments and blocks that strategies hold at one event.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "allocators/strategies/strategy.h"
#include "device/host/profiles.h"
#include "sheet/sheet.h"
#include "trace/trace.h"

namespace headroom {

// What a strategy may take: of a device that nobody else uses, up to a limit that the recorded program had.
struct ReplayRoom {
  int64_t device_bytes = 0;
  std::optional<int64_t> limit_bytes = {};

  int64_t capacity_bytes() const;
  // The settings with that limit, unless they have one of their own.
  StrategySettings limited(StrategySettings settings) const;
};

// The event that `text` names: a number from 1 on, "peak" (where most is live) or "end". Throws
// InvalidArgument for anything else, and for an event behind the trace's last.
int64_t snapshot_event(const std::string& text, const Trace& trace);

// Each strategy's state after that event of each trace, in one room.
Sheet show_snapshots(std::span<const Trace> traces, std::span<const std::string> strategies,
                     const DeviceProfile& profile, const ReplayRoom& room, const std::string& event);

}  // namespace headroom
