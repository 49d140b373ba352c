// Makes a process that SIGINT or SIGTERM ends print one line to stderr and exit with code 128 + signal.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// From now on, also in place of an earlier line. A signal that the process ignores, as background jobs of a
// shell do, stays ignored; EndSignals takes over while it lives. `name` begins the line and `why` ends it:
// "NAME: ended by SIGTERM WHY".
void say_which_signal_ends(std::string_view name, std::string_view why = {});

// Like the function above, without the line. For a process of a group in which another one prints it.
void end_silently_by_signals();

// Removes the file when such a signal ends the process, in place of the one named before; empty: none. For a
// temporary file that has a name because another program writes it.
void remove_when_ended(const std::string& path);

}  // namespace headroom
