// Explains in at most ten lines why a guarded program failed: the cause in its log, its own line, the figure,
// the next steps.
#pragma once

#include <string>
#include <vector>

#include "guard/account.h"
#include "tools/run/facts.h"
#include "tools/run/launch.h"

namespace headroom {

// Processes that the machine's or a container's out-of-memory killer has ended so far.
int64_t killed_for_memory();

struct Failure {
  const guard::Account& account;
  const Ended& ended;
  bool killed_for_memory = false;   // since the program began
  std::vector<std::string> traces;  // what was recorded
  Facts report;                     // what `headroom report --json` says of PyTorch's snapshot
  Facts facts;                      // what the start-up hook wrote of the process
  std::string kept_snapshot;        // beside the recording; empty: none
  std::string command;              // words of it, for a shell
};
std::string verdict_of_command(const Failure& failure);

// What a verdict is told from, as a file: it can be told again without its program or a GPU. Throws as
// write_file.
void write_failure(const std::string& path, const Failure& failure);
// Tells the verdict of such a file. Throws InvalidArgument if it is none.
std::string verdict_of_file(const std::string& path);

}  // namespace headroom
