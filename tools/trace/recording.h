// Reads recordings for commands, and says on stderr what a person must know to judge what they show. Knows no
// command.
#pragma once

#include <string>
#include <vector>

#include "trace/read_trace.h"
#include "trace/trace.h"

namespace headroom {

// read_traces, and a line on stderr where the file ends within a line: then it is not the whole program.
std::vector<Trace> read_with_notes(const std::string& path, FollowReading follow = {},
                                   Moments moments = Moments::kRefuse);

}  // namespace headroom
