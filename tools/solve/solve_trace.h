// `headroom solve` for a PyTorch program, or a recording of one.
#pragma once

#include <string>

#include "base/terminal.h"
#include "sheet/sheet.h"
#include "tools/workload/workload.h"

namespace headroom {

namespace solve {

// A sheet that begins with its verdict: "fits: residual, batch 256, in 600.00 MiB on sim: takes 599.00 MiB".
Sheet sheet_of(std::string title, bool fits, const std::string& taken);
// Prints the sheet, and first writes its page to `html`, unless that is empty.
void write(const Sheet& sheet, const std::string& html, bool json, const Terminal& terminal);

}  // namespace solve

// Prints changes with which the program fits the memory of the options, or all free memory of the device.
// `set` tells which options were given. Also writes a page to `html`, unless that is empty. Returns the exit
// code.
int solve_trace(const OptionSet& set, const std::string& input, WorkloadOptions options,
                const std::string& html, bool json);

}  // namespace headroom
