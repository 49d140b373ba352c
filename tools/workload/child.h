// Runs in processes of their own: what one leaves behind, or how it dies, is not the next one's. Knows no
// option.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/workload/measurement.h"

namespace headroom {

// The program of that name in the folder of this one; `headroom_run` runs a workload.
std::string sibling_path(std::string_view program);
std::string runner_path();

// How a process ended, and what it wrote.
struct ChildResult {
  int status;  // as waitpid has it
  std::string out, errors;
};
// Throws Error when it cannot be started.
ChildResult run_child(const std::string& program, const std::vector<std::string>& words);
// The last line of what a process wrote: its error, for programs of this project.
std::string last_line(std::string text);

// This process becomes that program. Returns only by an Error.
[[noreturn]] void become(const std::string& program, char** argv);

// What the runner measured with these words behind its name. A process that dies is the outcome "killed", one
// that ends with an error that is none of the run's "failed"; `error` says how. Throws InvalidArgument with
// its message for what it takes for bad options, and Error when no process can be started.
Measurement measure_in_child(const std::vector<std::string>& words);

}  // namespace headroom
