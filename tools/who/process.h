// The user and the command of a process. Knows GPUs only by the names of their device files.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::who {

struct ProcessInfo {
  std::string user, command;  // empty: unknown
};

// The user and the command line of process `pid`, without control characters. Unknown for a process that does
// not exist, and for one whose open files can be read and include none of an NVIDIA driver: in a container
// the driver's pid may be the host's and belong to another process here.
ProcessInfo find_process(int64_t pid, const std::string& proc = "/proc");

}  // namespace headroom::who
