// Shows the segments and blocks that strategies hold at one event, for `headroom replay --snapshot-at`.
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

// Memory for a strategy: a device without other processes, up to the limit of the recorded program.
struct ReplayRoom {
  int64_t device_bytes = 0;
  std::optional<int64_t> limit_bytes = {};

  int64_t capacity_bytes() const;
  // The settings with that limit, unless they have one of their own.
  StrategySettings limited(StrategySettings settings) const;
};

// Returns the event that `text` names: a number from 1 on, "peak" (when most is live) or "end". Throws
// InvalidArgument for anything else, and for an event after the trace's last.
int64_t snapshot_event(const std::string& text, const Trace& trace);

// Each strategy's state after that event of each trace, in one room.
Sheet show_snapshots(std::span<const Trace> traces, std::span<const std::string> strategies,
                     const DeviceProfile& profile, const ReplayRoom& room, const std::string& event);

}  // namespace headroom
