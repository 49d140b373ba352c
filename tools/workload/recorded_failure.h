// Requests of a recorded program that found no room, and what they say of the machine. Knows no command line.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/trace.h"

namespace headroom {

// Returns the trace up to that event and a request of so many bytes after it, with its known facts.
Trace until_request(const Trace& trace, int64_t event, int64_t bytes, const DeviceEvent& request = {});

// A recording holds no allocation for the request that ended its program: the trace up to it, and the
// request. The trace as it is where there is none.
Trace with_failed_request(Trace trace);

// Returns true if the last event is the request that ended the program.
bool ends_in_failure(const Trace& trace);

// Returns the memory available to the program when the last request failed: free, or reserved by it. Nullopt
// if the trace does not tell.
std::optional<int64_t> recorded_room_bytes(const Trace& trace);

// A limit on what the program may reserve, which refused requests although the device had room for them.
struct RecordedLimit {
  int64_t at_least_bytes = 0;  // maximum of the reserved bytes
  int64_t below_bytes = 0;     // reserved bytes after the smallest of the refused requests
  // Numbers of the last of them; 0 if the device had no room either.
  int64_t requested_bytes = 0, free_bytes = 0;
  // The memory that a replay needs less than the recorded process; it gets that much less.
  int64_t replay_spare_bytes = 0;
};
std::optional<RecordedLimit> recorded_limit(const Trace& trace);

}  // namespace headroom
