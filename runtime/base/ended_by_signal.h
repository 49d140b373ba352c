// What a process says when SIGINT or SIGTERM ends it: one line on stderr, and the exit code 128 + signal.
#pragma once

#include <string>

namespace headroom {

// From now on. A signal that the process ignores, as background jobs of a shell do, stays ignored; EndSignals
// takes over while it lives. `name` begins the line.
void say_which_signal_ends(const char* name);

// Removes the file when such a signal ends the process, in place of the one named before; empty: none. For a
// temporary file that has a name because another program writes it.
void remove_when_ended(const std::string& path);

}  // namespace headroom
