// Remembers that output of this process was lost where no exception may leave, as in an observer that writes
// a trace: the exit code says it at the end.
#pragma once

namespace headroom {

void note_lost_output() noexcept;
bool is_output_lost() noexcept;

}  // namespace headroom
