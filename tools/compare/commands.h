// headroom compare -- COMMAND: a program that is not ours, run once under each strategy.
#pragma once

#include <string>

#include "runtime/app/option_set.h"

namespace headroom::compare {

// Adds the options that only a command has.
void add_command_options(OptionSet& set, std::string* strategies);
// The words before `--` are options, those after it the command.
int compare_command(int argc, char** argv);

}  // namespace headroom::compare
