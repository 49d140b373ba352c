// Text for people and shells: what is fit for a terminal, commands to paste, "did you mean ...?". Knows
// nothing of what the text says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

// One line of valid UTF-8 for a terminal, a log or JSON, out of any bytes: tabs, line ends and NUL become
// blanks, other control characters and bytes that are not UTF-8 become "\x1b". What has more than `max_bytes`
// ends in
// "...".
std::string printable(std::string_view text, size_t max_bytes = std::string_view::npos);

// Without blanks, tabs and line ends on either side.
std::string_view trimmed(std::string_view text);

// With small letters in place of A to Z.
std::string lowered(std::string_view text);

// The word, in quotes where a shell would read it otherwise; control characters as \x1b, so that a terminal
// gets no commands.
std::string shell_word(std::string_view word);

// `command`, which is not quoted, and the words after it.
std::string command_line(std::string_view command, std::span<const std::string> words);

// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment distance).
int64_t edit_distance(std::string_view a, std::string_view b);

// The word of `known` nearest to `text`, ignoring case and the difference between '_' and '-'; else one that
// contains it (three letters at least); empty when there is neither: if more than a third of the word is
// wrong, it is no typing error.
std::string_view suggest_nearest(std::string_view text, std::span<const std::string_view> known);

// "a, b, c; did you mean 'b'?", or without the question when nothing is near: the end of a message about an
// unknown word.
std::string list_with_suggestion(std::string_view text, std::span<const std::string_view> known);

}  // namespace headroom
