// A history as characters: the chart of a terminal. Knows no colour.
#pragma once

#include <string>

#include "tools/report/history.h"

namespace headroom::report {

// Memory over the events, stacked by category with a letter for each, `width` columns by `height` rows and
// its axes, with a line that says what the letters mean. Context and libraries, which would often dwarf the
// rest, are left out.
std::string timeline(const History& history, int width = 72, int height = 14);

}  // namespace headroom::report
