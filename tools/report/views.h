// The views of a history: the chart of a terminal, the data of the HTML page, and JSON for Perfetto. They
// know no files.
#pragma once

#include <string>
#include <string_view>

#include "tools/report/history.h"
#include "tools/report/verdict.h"

namespace headroom::report {

// Live memory over the events as `width` x `height` characters with axes and a legend, one letter per
// category. Context and libraries are left out: they would often dwarf the rest.
std::string timeline(const History& history, int width = 72, int height = 14);

// The HTML page is kPageBeforeData + page_data(history) + kPageAfterData. The build makes the two constants
// from the files of page/. The data is JSON without '<', so that no name can end its <script> element;
// invalid UTF-8 in names is replaced. It has at most about 6 MB for any trace.
extern const std::string_view kPageBeforeData, kPageAfterData;
std::string page_data(const History& history, const Verdict& verdict);

// JSON for ui.perfetto.dev and chrome://tracing: counters of live bytes by category and of reserved bytes, a
// span for each block of choose_blocks, an instant for each retry and each failure. An event takes a
// microsecond if the trace has no times.
std::string chrome_trace(const History& history);

}  // namespace headroom::report
