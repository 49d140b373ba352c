// Writes the recordings of a guarded program's processes as traces that every command reads. Knows no
// program.
#pragma once

#include <string>
#include <vector>

#include "guard/account.h"

namespace headroom {

// Writes the recordings in `folder`: of the process that held most to `path`, of others to `path`.PID.
// Returns the files, that of the largest first. Throws as TraceWriter.
std::vector<std::string> write_recordings(const std::string& folder, const std::string& path,
                                          const guard::Account& account);

}  // namespace headroom
