// Runs in child processes, so that leftovers or crashes of one do not affect the next. Knows no option.
#pragma once

#include <string>
#include <vector>

#include "base/process/process.h"
#include "tools/workload/measure.h"

namespace headroom {

// Runs `headroom run` with these arguments and returns its measurement. This program must be the command. The
// outcome of a process that dies is kKilled, of one that ends with another error kFailed; `error` says how.
// Throws InvalidArgument with the process's message for bad options, and Error when it cannot be started.
Measurement measure_in_child(const std::vector<std::string>& words);

}  // namespace headroom
