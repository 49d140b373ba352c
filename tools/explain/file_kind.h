// Recognizes files that are clearly no logs by how they begin, so that no user is told that they hold no
// failure. Knows no log.
#pragma once

#include <string>
#include <string_view>

namespace headroom::explain {

// Says what a file is and what to do with it, as the end of a sentence that begins with its name: "is not a
// log: it is a pickle; ...". Empty where the beginning may be a log's. `beginning`: at least 64 bytes of the
// file, unpacked, or all of it. `path`: for the command that reads it.
std::string why_no_log(std::string_view beginning, std::string_view path);

}  // namespace headroom::explain
