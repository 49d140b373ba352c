// Remembers lost output of this process at places that no exception may leave, such as an observer that
// writes a trace: the exit code reports it at the end.
#pragma once

#include <atomic>

namespace headroom {

inline std::atomic<bool> output_is_lost = false;

}  // namespace headroom
