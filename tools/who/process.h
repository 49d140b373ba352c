// What the system says of a process. Knows no GPU but by the name of its device files.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::who {

struct ProcessInfo {
  std::string user, command;  // empty: unknown
};

// The user and the command line of process `pid`, blanks between its words and nothing that a terminal would
// obey. Unknown for a process that is not there, and for one that has no file of an NVIDIA driver open where
// that can be seen: in a container the driver's number may be the host's, and that of a stranger here.
ProcessInfo find_process(int64_t pid, const std::string& proc = "/proc");

}  // namespace headroom::who
