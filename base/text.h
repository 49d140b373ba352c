// Text for people and shells: text safe for a terminal, commands to paste, "did you mean ...?". Knows nothing
// about its content.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace headroom {

// Converts any bytes to one line of valid UTF-8 for a terminal, a log or JSON: tabs, line ends and NUL become
// blanks; other control characters, marks of direction, characters without width and invalid bytes become
// "\x1b", byte by byte. Text longer than `max_bytes` ends in "...".
std::string printable(std::string_view text, size_t max_bytes = std::string_view::npos);

// Escapes the same characters in a JSON text of valid UTF-8, which stays the same value.
std::string escaped_json(std::string_view json);

// The text of a value of the JSON library, so escaped; with `indent` blanks for each level, or in one line.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return escaped_json(json.dump(indent, ' ', false, Json::error_handler_t::replace));
}

// Returns the text without blanks, tabs and line ends on either side.
std::string_view trimmed(std::string_view text);

// The parts between separators, empty ones included: one more than there are separators.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

// The number that a whole text is; nothing for any other text.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// With small letters in place of A to Z.
std::string lowered(std::string_view text);

// Returns the word, quoted if a shell would interpret it; what printable() escapes as \x1b too, so that a
// terminal gets no commands.
std::string shell_word(std::string_view word);

// The words of a line of shell_word()s.
std::vector<std::string> shell_words(std::string_view line);

// `command`, which is not quoted, and the words after it.
std::string command_line(std::string_view command, std::span<const std::string> words);

// The number of insertions, deletions, replacements and swaps of neighbors that turn `a` into `b` (optimal
// string alignment distance).
int64_t edit_distance(std::string_view a, std::string_view b);

// Returns the word of `known` nearest to `text`, ignoring case and the difference between '_' and '-';
// otherwise one that contains it (three letters at least). Empty if there is neither: if more than a third of
// a word is wrong, it is not a typing error.
std::string_view suggest_nearest(std::string_view text, std::span<const std::string_view> known);

// "a, b, c; did you mean 'b'?", or without the question when nothing is near: the end of a message about an
// unknown word.
std::string list_with_suggestion(std::string_view text, std::span<const std::string_view> known);

}  // namespace headroom
