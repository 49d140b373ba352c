// An observer that writes what an allocator is asked to a trace. Knows no strategy.
#pragma once

#include <functional>
#include <string>

#include "allocators/allocator.h"

namespace headroom {

// To be given to Allocator::set_observer; the file is complete when the allocator is gone. Requests that find
// no room are not in it, since nothing came of them. Throws InvalidArgument when the file cannot be written.
std::function<void(const AllocatorEvent&)> recorder(const std::string& path);

}  // namespace headroom
