// How long this process has been running. Knows nothing else.
#pragma once

namespace headroom {

// Seconds since the kernel started this process, to 10 ms: dynamic linking and what ran before main are in
// it. Where /proc does not tell, since the program's first call.
double seconds_since_process_start();

}  // namespace headroom
