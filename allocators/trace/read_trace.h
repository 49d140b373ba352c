// Reads allocation traces in every format that is known, told apart by their content. Knows no device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocators/trace/trace.h"

namespace headroom {

// The traces of a file, gzipped or not: one for each device that it has events of, so usually one. Formats
// are Headroom's own recording, `op,id,bytes` CSV, RMM's log and PyTorch's memory snapshot (docs/replay.md).
// Memory grows with the events read and is bounded; nothing of the file is executed. Throws InvalidArgument
// of one line, with the file and the line or byte, for anything that is no whole, possible trace.
std::vector<Trace> read_traces(const std::string& path);

}  // namespace headroom
