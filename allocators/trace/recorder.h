// An observer that writes what an allocator is asked, and what it asks of the driver, to a trace. Knows no
// strategy.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "allocators/allocator.h"

namespace headroom {

// Names and values that say of what the recording is: "strategy", "device", "limit_bytes".
using RecordedSettings = std::vector<std::pair<std::string, std::string>>;

// To be given to Allocator::set_observer; the file is complete when the allocator is gone. A write that fails
// ends the recording, which a line on stderr says then; the program goes on. Throws InvalidArgument when the
// file cannot be written at all.
std::function<void(const AllocatorEvent&)> recorder(const std::string& path,
                                                    const RecordedSettings& settings = {});

}  // namespace headroom
