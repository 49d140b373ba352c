// Plays a trace to a memory strategy and says how that went: whether it fits, in how much, and how fast.
// Touches none of the bytes, so memory without backing will do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "allocators/strategies/strategy.h"
#include "allocators/trace/trace.h"
#include "runtime/device/host/profiles.h"

namespace headroom {

struct ReplayResult {
  // Which event, counted from 1 on through all passes, found no room; 0: the strategy could not even start.
  std::optional<int64_t> failed_event;
  std::optional<MemoryFacts> failure;  // what was known then
  Statistics statistics;      // at the end or the failure, with what the trace never frees still live
  double fragmentation = 0;   // Statistics' own, when most was live in the last pass, or at the failure
  double driver_time_us = 0;  // of its driver calls, on the device's clock
  double ns_per_call = 0;     // of host time, in the fastest pass that was finished; 0 if none was

  bool fits() const { return !failed_event; }
};

// The trace `passes` times over; what it never frees is freed between passes. The settings are used as they
// are. Throws what Device::initialise and make_allocator throw, but OutOfMemory.
ReplayResult replay(const Trace& trace, const StrategySettings& settings, Device& device, int64_t passes = 1);

// What a strategy may take on a device of that profile: the whole pages of all but what other processes and
// the context hold.
int64_t capacity_of(const DeviceProfile& profile);
// The same on a device of the profile's page and costs that has `capacity_bytes` for the strategy and nothing
// else: no context, no libraries, no reserve for them, no memory behind its addresses. A strategy that needs
// a limit and has none gets the capacity as its limit.
ReplayResult replay_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                  int64_t capacity_bytes, int64_t passes = 1);

// What a strategy holds after that event (counted from 1) of the first pass, or at the event that found no
// room if that comes first, on such a device. Blocks have the requests and names of the trace, and the
// trace's handles as streams. Event 0 and no segments where the strategy could not start.
struct ReplaySnapshot {
  Snapshot snapshot;
  int64_t event = 0;
  bool out_of_memory = false;
};
ReplaySnapshot snapshot_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                           int64_t capacity_bytes, int64_t event);

// The least capacity found at which replay_at fits: a multiple of the profile's page of which one page less
// does not fit. A strategy may also fail with more or fit with less; so that an island of success below is
// missed only if it is small, the capacities between it and the largest live set are sampled, and the search
// goes on below the least of those that fit. Nothing when 64 times the largest live set is not enough.
std::optional<int64_t> minimum_capacity(const Trace& trace, const StrategySettings& settings,
                                        const DeviceProfile& profile, int64_t passes = 1);

}  // namespace headroom
