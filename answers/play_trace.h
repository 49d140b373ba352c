// Plays a trace in a setup, as Play does. Apart from play_program.h: a program that only replays needs no
// kernel.
#pragma once

#include "answers/out_of_memory.h"
#include "trace/trace.h"

namespace headroom {

// On a device whose setup.device.total_bytes are all for the strategy.
Attempt play_trace(const Trace& trace, const RunSetup& setup, bool explains);

// `passes` times on the device of the setup, where other processes, the context and the reserve for libraries
// take their share; the libraries themselves instead of the reserve, where they start first.
Attempt play_trace_on_device(const Trace& trace, const RunSetup& setup, int64_t passes, bool explains);

}  // namespace headroom
