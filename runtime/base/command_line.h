// A command as text that a shell takes back word by word, for the lines that say what to do next. Knows no
// program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headroom {

// The word, in quotes where a shell would read it otherwise; control characters as \x1b, so that a terminal
// gets no commands.
std::string shell_word(std::string_view word);

// `command`, which is not quoted, and the words behind it.
std::string command_line(std::string_view command, std::span<const std::string> words);

}  // namespace headroom
