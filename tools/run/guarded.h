// headroom run -- COMMAND: a program that is not ours under a limit, by the library of guard/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/app/option_set.h"

namespace headroom {

struct GuardOptions {
  std::vector<std::string> limits;  // "1GiB", "0=1GiB,GPU-...=2GiB"
  std::optional<int64_t> soft, leave, reserve;
  std::string strategy, record, result, failure;
};
// Adds the options that only a command has.
void add_command_options(OptionSet& set, GuardOptions& options);

// The words before `--` are options, those after it the command. Ends as the command does.
int run_guarded(int argc, char** argv);

}  // namespace headroom
