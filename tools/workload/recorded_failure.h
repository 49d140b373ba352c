// Requests of a recorded program that found no room, and what they say of the machine. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/trace.h"

namespace headroom {

// The trace up to that event and a request of so many bytes behind it, with what is known of it.
Trace until_request(const Trace& trace, int64_t event, int64_t bytes, const DeviceEvent& request = {});

// A recording holds no allocation for the request that ended its program: the trace up to it, and the
// request. The trace as it is where there is none.
Trace with_failed_request(Trace trace);

// Whether the last event is the request that ended the program.
bool ends_in_failure(const Trace& trace);

// What the program could take of the device when a request failed: free, and reserved by it. Nothing where
// the trace does not say.
struct RecordedRoom {
  int64_t free_bytes = 0, reserved_bytes = 0;
};
std::optional<RecordedRoom> recorded_room(const Trace& trace);

// A limit on what the program may reserve, which refused requests although the device had room for them.
struct RecordedLimit {
  int64_t at_least_bytes = 0;  // what was reserved once
  int64_t below_bytes = 0;     // what would have been reserved with the least of the refused requests
  // Of the last of them; 0 where the device had no room either.
  int64_t requested_bytes = 0, free_bytes = 0;
  // How much less a replay needs than the recorded process; it gets so much less.
  int64_t replay_spare_bytes = 0;
};
std::optional<RecordedLimit> recorded_limit(const Trace& trace);

}  // namespace headroom
