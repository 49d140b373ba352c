// Says what the blocks of a trace are for, where its file does not: from the phases in which they come and
// go.
#pragma once

#include "trace/trace.h"

namespace headroom {

// Fills in categories and the rules that decided, for blocks of category kOther. Needs marks. Without them
// only a trace of one moment changes: its stacks tell.
void categorize(Trace& trace);

// Whether the trace holds only what was live at one moment, without a history.
bool is_moment(const Trace& trace);

// The request that found no room and ended the work; null if there was none, or the program went on: more was
// live later, or another step followed.
const DeviceEvent* fatal_failure(const Trace& trace);

}  // namespace headroom
