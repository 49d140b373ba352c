// The time since this process started.
#pragma once

namespace headroom {

// Seconds since the kernel started this process, to 10 ms, with dynamic linking. If /proc is missing, since
// the first call.
double seconds_since_process_start();

}  // namespace headroom
