// The width and colors of a program's output: a terminal has a width and may show colors, a pipe has neither.
// Wraps and shortens text. Knows no program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace headroom {

enum class Color { kRed, kYellow, kGreen, kBold, kDim };

// When to print colors; auto: on a terminal, unless NO_COLOR is set (no-color.org) or TERM is dumb.
enum class ColorWhen : uint8_t { kAuto, kAlways, kNever };
constexpr auto value_names(ColorWhen) {
  return std::to_array<std::string_view>({"auto", "always", "never"});
}

class Terminal {
 public:
  // Uses the width of the stream, or COLUMNS if that is set and the stream is not a terminal.
  explicit Terminal(FILE* stream, ColorWhen colors = ColorWhen::kAuto);
  // A terminal of that width; 0: a pipe.
  Terminal(size_t width, bool colors) : width_(width), colors_(colors), is_live_(width > 0) {}

  // Characters in a line; 0: as many as there are.
  size_t width() const { return width_; }
  bool colors() const { return colors_; }
  // Returns true on a terminal, where output may be overwritten.
  bool is_live() const { return is_live_; }

  // Returns the text in that color, if colors are on.
  std::string painted(std::string_view text, Color color) const;
  // Breaks text at blanks into lines that fit the terminal. All lines but the first begin with `indent`
  // blanks; the first starts after `used` characters. A longer word stays whole.
  std::string wrapped(std::string_view text, size_t indent = 0, size_t used = 0) const;
  // Returns the text, or its beginning and "..." if it is longer than `most` characters or than the
  // terminal's width after `used` characters.
  std::string cut(std::string_view text, size_t used, size_t most) const;

 private:
  size_t width_ = 0;
  bool colors_ = false, is_live_ = false;
};

// Returns the number of characters, not bytes, of UTF-8 text on a terminal.
size_t characters(std::string_view text);
// The first `count` characters, or all if there are fewer.
std::string_view first_characters(std::string_view text, size_t count);

}  // namespace headroom
