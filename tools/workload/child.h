// Runs in processes of their own: what one leaves behind, or how it dies, is not the next one's. Knows no
// option.
#pragma once

#include <string>
#include <vector>

#include "tools/workload/measurement.h"

namespace headroom {

// The program that runs a workload: `headroom_run`, in the folder of this one.
std::string runner_path();

// What the runner measured with these words behind its name. A process that dies is the outcome "killed", one
// that ends with an error that is none of the run's "failed"; `error` says how. Throws InvalidArgument with
// its message for what it takes for bad options, and Error when no process can be started.
Measurement measure_in_child(const std::vector<std::string>& words);

}  // namespace headroom
