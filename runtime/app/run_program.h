// How every program of the project ends. Knows no option and no device.
#pragma once

#include <string_view>

namespace headroom {

// The text as one line on stderr, led by the program's name.
void print_failure(const char* name, std::string_view text);

// Calls `run` and returns its exit code; an exception becomes one line on stderr, led by the program's name,
// and the code of its kind (see ExitCode). Output that stdout did not take is such a failure, too. A standard
// stream that the caller has closed is /dev/null.
int run_program(const char* name, int (*run)(int, char**), int argc, char** argv);

}  // namespace headroom
