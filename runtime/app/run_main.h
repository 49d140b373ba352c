// The frame of every program's main: errors and exit codes. Knows no option and no device.
#pragma once

#include <string_view>

namespace headroom {

// Prints the text as one line on stderr, after the program's name.
void print_failure(const char* name, std::string_view text);

// Calls `run` and returns its exit code. Prints an exception as one line on stderr, after the program's name,
// and returns the code of its kind (see ExitCode). A failed write to stdout counts as such a failure. Opens
// standard streams that the caller has closed on /dev/null.
int run_main(const char* name, int (*run)(int, char**), int argc, char** argv);

}  // namespace headroom
