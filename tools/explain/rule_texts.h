// Splits a row of the rules into its texts. Knows no rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::explain {

inline constexpr std::string_view kOr = " || ";  // between the texts of a row, and an option and an argument
inline constexpr size_t kMostTexts = 200;

// Gives the texts of a row: "a || b" are two, and so are "{a|b} c". Texts that are in no file go to `made`.
// Nothing if they are more than kMostTexts.
std::optional<std::vector<std::string_view>> texts_of(std::string_view row, std::deque<std::string>& made);

// Takes the first word from a text.
std::string_view take_word(std::string_view& text);

// '"a "' is 'a '.
std::string_view without_quotes(std::string_view text);

// Gives a path as Windows writes it, or a text with a capital first; empty where that is the text itself.
std::string_view windows_path(std::string_view text, std::deque<std::string>& made);
std::string_view with_capital(std::string_view text, std::deque<std::string>& made);

}  // namespace headroom::explain
