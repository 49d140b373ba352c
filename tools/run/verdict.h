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
  std::string snapshot;             // of PyTorch, written when memory ran out; empty: none
  std::string facts;                // of what the process kept then, from the start-up hook; empty: none
  bool keeps_snapshot = false;      // beside the recording
  std::string command;              // words of it, for a shell
};
std::string verdict_of_command(const Failure& failure);

}  // namespace headroom
