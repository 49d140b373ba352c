// Reads recordings for commands, and prints notes on stderr that users need to judge the results. Knows no
// command.
#pragma once

#include <string>
#include <vector>

#include "trace/read_trace.h"
#include "trace/trace.h"

namespace headroom {

// Like read_traces, with a line on stderr if the file ends within a line: then it is not the whole program.
std::vector<Trace> read_with_notes(const std::string& path, FollowReading follow = {},
                                   Moments moments = Moments::kRefuse);

}  // namespace headroom
