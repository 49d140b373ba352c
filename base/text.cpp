#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

namespace headroom {
namespace {

// Characters besides letters and digits that no shell interprets anywhere in a word.
constexpr std::string_view kPlain = "_@%+=:,./-";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPlain.find(c) != std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// Bytes of the character that `text` begins with; 0 when it is not valid UTF-8 (RFC 3629).
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (bytes == 0) return 0;
  uint32_t code = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool control = code >= 0x80 && code < 0xa0;
  return overlong || control || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : bytes;
}

std::string folded(std::string_view text) {
  std::string result = lowered(text);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kBlanks("\0\t\n\v\f\r", 6);
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    if (i >= max_bytes) return clean + "...";
    const size_t bytes = is_control(text[i]) ? 0 : character_bytes(text.substr(i));
    if (bytes > 0) {
      clean += text.substr(i, bytes);
    } else if (kBlanks.find(text[i]) != std::string_view::npos) {
      clean += ' ';
    } else {
      clean += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    }
    i += std::max<size_t>(bytes, 1);
  }
  return clean;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

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

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view suggest_nearest(std::string_view text, std::span<const std::string_view> known) {
  const std::string wanted = folded(text);
  std::string_view nearest;
  int64_t nearest_distance = 0;
  for (const std::string_view word : known) {
    const int64_t distance = edit_distance(wanted, folded(word));
    const auto tolerated = static_cast<int64_t>(std::max(wanted.size(), word.size()) / 3);
    if (distance > tolerated || (!nearest.empty() && distance >= nearest_distance)) continue;
    nearest = word;
    nearest_distance = distance;
  }
  if (!nearest.empty() || wanted.size() < 3) return nearest;
  for (const std::string_view word : known) {
    if (folded(word).find(wanted) != std::string::npos) return word;  // "growth" for "allow-growth"
  }
  return {};
}

std::string list_with_suggestion(std::string_view text, std::span<const std::string_view> known) {
  const std::string list = fmt::format("{}", fmt::join(known, ", "));
  const std::string_view nearest = suggest_nearest(text, known);
  return nearest.empty() ? list : fmt::format("{}; did you mean '{}'?", list, nearest);
}

}  // namespace headroom
