// Plays a trace to a memory strategy: whether it fits, in how much memory, and how fast. Touches none of the
// bytes, so simulated memory needs no backing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "allocators/strategies/strategy.h"
#include "device/host/profiles.h"
#include "trace/trace.h"

namespace headroom {

struct ReplayResult {
  // The event that found no room, counted from 1 through all passes; 0: the strategy could not start.
  std::optional<int64_t> failed_event;
  std::optional<MemoryFacts> failure;  // at that event
  Statistics statistics;      // at the end or the failure, with blocks that the trace never frees still live
  double fragmentation = 0;   // when most was live in the last pass, or at the failure
  double driver_time_us = 0;  // of driver calls, on the device's clock
  double ns_per_call = 0;     // host time in the fastest complete pass; 0 if none
  int64_t used_bytes = 0;     // of the device at its peak, by anybody
  int64_t enough_total = 0;   // of MemoryInfo

  bool fits() const { return !failed_event; }
};

// How far the last pass goes. What follows the last allocation finds no lack of room and raises no peak.
enum class ReplayEnd : uint8_t { kLastEvent, kLastAllocation };

// Plays the trace `passes` times; blocks that it never frees are freed between passes. Throws what
// Device::initialise and make_allocator throw, except OutOfMemory.
ReplayResult replay(const Trace& trace, const StrategySettings& settings, Device& device, int64_t passes = 1,
                    ReplayEnd end = ReplayEnd::kLastEvent);

// What a strategy may take on a device of that profile: whole pages of the total less what other processes
// and the context hold.
int64_t capacity_of(const DeviceProfile& profile);
// The same on a simulated device with the profile's page size and costs and `capacity_bytes` for the strategy
// alone: no context, no libraries, no reserve. A strategy that needs a limit and has none gets the capacity
// as its limit.
ReplayResult replay_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                       int64_t capacity_bytes, int64_t passes = 1, ReplayEnd end = ReplayEnd::kLastEvent);

// What a strategy holds after that event (counted from 1) of the first pass, or at an earlier event that
// found no room, on such a device. Blocks have the sizes, names and streams of the trace. Event 0 and no
// segments if the strategy could not start.
struct ReplaySnapshot {
  Snapshot snapshot;
  int64_t event = 0;
  bool out_of_memory = false;
};
ReplaySnapshot snapshot_at(const Trace& trace, StrategySettings settings, const DeviceProfile& profile,
                           int64_t capacity_bytes, int64_t event);

// The least capacity found at which replay_at fits: a multiple of the profile's page; one page less does not
// fit. Fitting need not be monotonic, so capacities between the largest live set and the result are sampled,
// and the search continues below the least that fits. A trace of more than 60,000 events has fewer trials
// (see SearchWork): then less than the result may fit, too. Nothing if 64 times the largest live set
// is not enough.
std::optional<int64_t> minimum_capacity(const Trace& trace, const StrategySettings& settings,
                                        const DeviceProfile& profile, int64_t passes = 1);

}  // namespace headroom
