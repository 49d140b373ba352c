// Text out of a log, fit for a terminal and for JSON.
#pragma once

#include <string>
#include <string_view>

namespace headroom::explain {

// Valid UTF-8 without control characters: runs of those and of blanks become one blank, bytes that are not
// UTF-8 become '?'. No blanks at the ends.
std::string printable(std::string_view text);

}  // namespace headroom::explain
