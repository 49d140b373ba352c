// Kinds of characters in a log, in ASCII whatever the locale.
#pragma once

namespace headroom::explain {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
// A name in a program is made of these.
constexpr bool is_word_character(char c) {
  return is_letter(c) || is_digit(c) || c == '_';
}

}  // namespace headroom::explain
