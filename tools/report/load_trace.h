// The one trace of a file that a view is of. Knows no output.
#pragma once

#include <string>

#include "allocators/trace/trace.h"

namespace headroom::report {

// Of a file with several devices the one with the largest peak, whose name says which it is; unfolded. Throws
// InvalidArgument as read_traces does.
Trace load_trace(const std::string& path);

}  // namespace headroom::report
