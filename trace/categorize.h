// Finds the purpose of blocks that a trace's file does not tell, from the phases in which they are allocated
// and freed.
#pragma once

#include "trace/trace.h"

namespace headroom {

// Sets the category of blocks of category kOther, and the rule that decided it. Needs marks. If there are
// none, only a trace of one moment changes, by its stacks.
void categorize(Trace& trace);

// Returns true if the trace holds only the blocks live at one moment, with no history.
bool is_moment(const Trace& trace);

// The request that found no room and ended the work; null if there was none, or the program went on: more was
// live later, or another step followed.
const DeviceEvent* fatal_failure(const Trace& trace);

}  // namespace headroom
