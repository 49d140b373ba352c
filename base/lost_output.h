// Remembers lost output of this process at places that no exception may leave, such as an observer that
// writes a trace: the exit code reports it at the end.
#pragma once

namespace headroom {

void note_lost_output() noexcept;
bool is_output_lost() noexcept;

}  // namespace headroom
