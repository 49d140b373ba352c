// Text in an HTML page. Knows no page.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// The text with the characters that HTML reads as its own replaced, also inside a quoted attribute.
std::string escaped_html(std::string_view text);

}  // namespace headroom
