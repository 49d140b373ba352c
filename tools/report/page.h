// The HTML page of a report, around its data. Made of page.html, page.css and page.js by the build.
#pragma once

#include <string_view>

namespace headroom::report {

extern const std::string_view kPageBeforeData, kPageAfterData;

}  // namespace headroom::report
