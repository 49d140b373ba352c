// Observers that write an allocator's requests and driver calls to a trace. Know no strategy.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

class TraceBuilder;

// Settings of the traced program: "strategy", "device", "limit_bytes".
using TraceSettings = std::vector<std::pair<std::string, std::string>>;

// Pass it to Allocator::set_observer. The file is complete when the allocator is destroyed. If a write fails,
// the trace ends there, a line on stderr reports it, and the program continues. Throws InvalidArgument if the
// file cannot be created.
std::function<void(const AllocatorEvent&)> trace_recorder(const std::string& path,
                                                          const TraceSettings& settings = {});

// Records into a trace in memory, without times and without parts of blocks. `builder` must outlive the
// allocator.
std::function<void(const AllocatorEvent&)> trace_recorder(TraceBuilder& builder);

}  // namespace headroom
