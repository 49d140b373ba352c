// What the HTML page is given: a history boiled down to a bounded size, as JSON. Knows no markup.
#pragma once

#include <string>

#include "tools/report/history.h"

namespace headroom::report {

// JSON that may stand inside a <script> element: it has no '<'. Names are bytes of strangers; what is no
// UTF-8 in them is replaced. Never more than about 4 MB, whatever the trace.
std::string page_data(const History& history);

}  // namespace headroom::report
