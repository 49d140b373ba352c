#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace headroom {
namespace {

bool continues_a_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

size_t characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\x1b[")) {  // a color
      i = std::min(text.find('m', i), text.size());
    } else if (!continues_a_character(text[i])) {
      ++count;
    }
  }
  return count;
}

std::string_view first_characters(std::string_view text, size_t count) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (!continues_a_character(text[end]) && count-- == 0) break;
  }
  return text.substr(0, end);
}

Terminal::Terminal(FILE* stream, ColorWhen colors) {
  const int file = fileno(stream);
  is_live_ = isatty(file) != 0;
  winsize size{};
  if (is_live_ && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    width_ = size.ws_col;
  } else if (is_set("COLUMNS")) {
    width_ = std::strtoul(std::getenv("COLUMNS"), nullptr, 10);
  }
  const char* const term = std::getenv("TERM");
  const bool wanted =
      is_live_ && !is_set("NO_COLOR") && (term == nullptr || std::string_view(term) != "dumb");
  colors_ = colors == ColorWhen::kAlways || (colors == ColorWhen::kAuto && wanted);
}

std::string Terminal::painted(std::string_view text, Color color) const {
  if (!colors_) return std::string(text);
  constexpr std::string_view kCodes[] = {"31", "33", "32", "1", "2"};
  return "\x1b[" + std::string(kCodes[static_cast<size_t>(color)]) + "m" + std::string(text) + "\x1b[0m";
}

std::string Terminal::wrapped(std::string_view text, size_t indent, size_t used) const {
  if (width_ == 0) return std::string(text);
  std::string made;
  size_t at = used;
  bool is_first = true;
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t length = characters(word);
    if (!is_first && at + begin + length > width_) {
      made += '\n' + std::string(indent, ' ');
      at = indent;
    } else {
      made.append(begin, ' ');
      at += begin;
    }
    made += word;
    at += length;
    is_first = false;
    text.remove_prefix(end);
  }
  return made;
}

std::string Terminal::cut(std::string_view text, size_t used, size_t most) const {
  constexpr std::string_view kCut = "...";
  if (width_ > 0) most = std::max(width_ > used ? width_ - used : 0, kCut.size() + 1);
  if (characters(text) <= most) return std::string(text);
  return std::string(first_characters(text, most - kCut.size())) + std::string(kCut);
}

}  // namespace headroom
