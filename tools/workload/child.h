// Runs in processes of their own: what one leaves behind, or how it dies, is not the next one's. Knows no
// option.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/workload/measurement.h"

namespace headroom {

// This program, and the one of that name in its folder.
std::string own_path();
std::string path_of_sibling(std::string_view program);

// How a process ended, and what it wrote.
struct ChildResult {
  int status;  // as waitpid has it
  std::string out, errors;
};
// It does not outlive this process. Throws Error when it cannot be started.
ChildResult run_child(const std::string& program, const std::vector<std::string>& words);
// The last line that it wrote to stderr, which is its error for the command, without the command's name.
std::string error_of(const ChildResult& child);

// This process becomes that program. Returns only by an Error.
[[noreturn]] void become(const std::string& program, char** argv);

// What `headroom run` measured with these words behind it. This program has to be the command. A process that
// dies is the outcome "killed", one that ends with an error that is none of the run's "failed"; `error` says
// how. Throws InvalidArgument with its message for what it takes for bad options, and Error when no process
// can be started.
Measurement measure_in_child(const std::vector<std::string>& words);

}  // namespace headroom
