// A history as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open. Knows no file.
#pragma once

#include <string>

#include "tools/report/history.h"

namespace headroom::report {

// Counters of live bytes by category and of what is reserved, a span for each of the blocks that held most
// for longest, at most 20,000, and an instant for each retry and each out of memory. Where the trace has no
// times an event lasts a microsecond.
std::string chrome_trace(const History& history);

}  // namespace headroom::report
