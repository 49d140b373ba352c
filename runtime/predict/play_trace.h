// Plays a trace under a setting. Apart from play_program.h: a program that only replays needs no kernel.
#pragma once

#include "allocators/trace/trace.h"
#include "runtime/predict/out_of_memory.h"

namespace headroom {

// On a device that has setting.device.total_bytes for the strategy and nothing else.
Attempt play_trace(const Trace& trace, const Setting& setting);

// `passes` times on a device as the setting has it, with what others, the context and the reserve for
// libraries take of it.
Attempt play_trace_on_device(const Trace& trace, const Setting& setting, int64_t passes);

}  // namespace headroom
