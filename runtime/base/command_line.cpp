#include "runtime/base/command_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom {
namespace {

// Beside letters and digits: what no shell reads anything into, wherever it stands in a word.
constexpr std::string_view kPlain = "_@%+=:,./-";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPlain.find(c) != std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  const bool has_control = std::any_of(word.begin(), word.end(), is_control);
  std::string text = has_control ? "$'" : "'";
  for (const char c : word) {
    if (is_control(c)) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else if (has_control && (c == '\'' || c == '\\')) {
      text += {'\\', c};
    } else if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::string command_line(std::string_view command, std::span<const std::string> words) {
  std::string text(command);
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

}  // namespace headroom
