// Explains in at most ten lines why a guarded program failed: the cause in its log, its own line, the figure,
// the next steps.
#pragma once

#include <string>
#include <vector>

#include "guard/account.h"
#include "tools/run/launch.h"

namespace headroom {

// Processes that the machine's or a container's out-of-memory killer has ended so far.
int64_t killed_for_memory();

struct Failure {
  const guard::Account& account;
  const Ended& ended;
  bool killed_for_memory = false;   // since the program began
  std::vector<std::string> traces;  // what was recorded
  std::string report;         // what `headroom report --json` says of PyTorch's snapshot; empty: no snapshot
  std::string facts;          // what the start-up hook wrote of the process, as JSON; empty: none
  std::string kept_snapshot;  // beside the recording; empty: none
  std::string command;        // words of it, for a shell
};
std::string verdict_of_command(const Failure& failure);

}  // namespace headroom
