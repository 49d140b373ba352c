// Shows the memory of programs under `headroom run -- COMMAND`, from their shared accounts.
#pragma once

#include <string>

#include "base/terminal.h"

namespace headroom::who {

// A table with a row for each process and card; empty when none is guarded.
std::string guarded_text(const Terminal& terminal);

}  // namespace headroom::who
