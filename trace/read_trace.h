// Reads allocation traces of every known format, detected by content. Knows no device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace headroom {

// Hears how much of a file is read, 0 to 1.
using FollowReading = std::function<void(double share)>;

// The handling of a snapshot that holds only the blocks live at one moment. Views can show it; it cannot be
// replayed.
enum class Moments : uint8_t { kRefuse, kTake };

// The traces of a file, gzipped or not: one for each device with events, so usually one. Formats are
// Headroom's own, `op,id,bytes` CSV, RMM's log and PyTorch's memory snapshot (docs/replay.md). Memory use is
// bounded, and nothing in the file is executed. Throws InvalidArgument with one line that names the file and
// the line or byte of anything that cannot be a trace. A title stands for the name of a file that people do
// not know.
std::vector<Trace> read_traces(const std::string& path, FollowReading follow = {},
                               Moments moments = Moments::kRefuse, const std::string& title = {});

}  // namespace headroom
