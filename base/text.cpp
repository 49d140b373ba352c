#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <utility>

namespace headroom {
namespace {

// Characters besides letters and digits that no shell interprets anywhere in a word.
constexpr std::string_view kPlain = "_@%+=:,./-";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPlain.find(c) != std::string_view::npos;
}

struct Character {
  size_t bytes = 0;  // 0: not valid UTF-8 (RFC 3629)
  uint32_t code = 0;
};

// The character that `text`, which is not empty, begins with.
Character character_of(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (bytes == 0) return {};
  uint32_t code = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool is_code = !overlong && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return is_code ? Character{bytes, code} : Character{};
}

// Returns true for what a terminal obeys or does not show: control characters, line ends, marks that turn the
// direction of text, characters without a width, tags. With them a name can look like another.
bool is_hidden(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kHidden[] = {
      {0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},      {0x34f, 0x34f},   {0x61c, 0x61c},
      {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180b, 0x180f},  {0x200b, 0x200f}, {0x2028, 0x202e},
      {0x2060, 0x206f}, {0x3164, 0x3164},   {0xfe00, 0xfe0f},  {0xfeff, 0xfeff}, {0xffa0, 0xffa0},
      {0xfff0, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  return std::ranges::any_of(kHidden,
                             [&](const auto& range) { return code >= range.first && code <= range.second; });
}

// Bytes of the character that `text` begins with; 0 for one that is not to be shown as it is.
size_t shown_bytes(std::string_view text) {
  const Character character = character_of(text);
  return is_hidden(character.code) ? 0 : character.bytes;
}

std::string as_byte(char c) {
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

std::string folded(std::string_view text) {
  std::string result = lowered(text);
  std::ranges::replace(result, '_', '-');
  return result;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kBlanks("\0\t\n\v\f\r", 6);
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    if (i >= max_bytes) return clean + "...";
    const size_t bytes = shown_bytes(text.substr(i));
    if (bytes > 0) {
      clean += text.substr(i, bytes);
    } else if (kBlanks.find(text[i]) != std::string_view::npos) {
      clean += ' ';
    } else {
      clean += as_byte(text[i]);
    }
    i += std::max<size_t>(bytes, 1);
  }
  return clean;
}

std::string escaped_json(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    const auto plain = std::find_if(json.begin() + static_cast<std::ptrdiff_t>(i), json.end(),
                                    [](char c) { return static_cast<unsigned char>(c) >= 0x7f; });
    const auto end = static_cast<size_t>(plain - json.begin());
    text += json.substr(i, end - i);
    if (end == json.size()) break;
    const auto [bytes, code] = character_of(json.substr(end));
    if (!is_hidden(code)) {
      text += json.substr(end, std::max<size_t>(bytes, 1));
    } else if (code < 0x10000) {
      text += fmt::format("\\u{:04x}", code);
    } else {
      text += fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    }
    i = end + std::max<size_t>(bytes, 1);
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  bool has_hidden = false;
  for (size_t i = 0, bytes = 0; i < word.size(); i += std::max<size_t>(bytes, 1)) {
    bytes = shown_bytes(word.substr(i));
    has_hidden = has_hidden || bytes == 0;
  }
  std::string text = has_hidden ? "$'" : "'";
  for (size_t i = 0, bytes = 0; i < word.size(); i += std::max<size_t>(bytes, 1)) {
    bytes = shown_bytes(word.substr(i));
    if (bytes == 0) {
      text += as_byte(word[i]);
    } else if (has_hidden && (word[i] == '\'' || word[i] == '\\')) {
      text += {'\\', word[i]};
    } else if (word[i] == '\'') {
      text += "'\\''";
    } else {
      text += word.substr(i, bytes);
    }
  }
  return text + "'";
}

std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false, quoted = false, has_escapes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (!quoted && c == ' ') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    std::string& word = words.back();
    const bool escapes = c == '\\' && (!quoted || has_escapes) && i + 1 < line.size();
    if (!quoted && (c == '\'' || (c == '$' && i + 1 < line.size() && line[i + 1] == '\''))) {
      has_escapes = c == '$';
      i += has_escapes ? 1 : 0;
      quoted = true;
    } else if (quoted && c == '\'') {
      quoted = false;
    } else if (escapes && quoted && line[i + 1] == 'x' && i + 3 < line.size()) {
      unsigned value = 0;
      std::from_chars(line.data() + i + 2, line.data() + i + 4, value, 16);
      word += static_cast<char>(value);
      i += 3;
    } else {
      i += escapes ? 1 : 0;
      word += line[i];
    }
  }
  return words;
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
