// Plays a trace under a setup. Apart from play_program.h: a program that only replays needs no kernel.
#pragma once

#include "allocators/trace/trace.h"
#include "runtime/predict/out_of_memory.h"

namespace headroom {

// On a device that has setup.device.total_bytes for the strategy and nothing else.
Attempt play_trace(const Trace& trace, const RunSetup& setup);

// `passes` times on a device as the setup has it, with what others, the context and the reserve for
// libraries take of it.
Attempt play_trace_on_device(const Trace& trace, const RunSetup& setup, int64_t passes);

}  // namespace headroom
