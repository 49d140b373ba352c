// What a program's output is read on: a terminal has a width and may show colours, a pipe has neither. Wraps
// and cuts text for it. Knows no program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace headroom {

enum class Colour { kRed, kYellow, kGreen, kBold, kDim };

// When to print colours; auto: on a terminal, unless NO_COLOR is set (no-color.org) or TERM is dumb.
enum class ColourWhen : uint8_t { kAuto, kAlways, kNever };
template <>
struct EnumNames<ColourWhen> {
  static constexpr std::array<std::string_view, 3> kNames = {"auto", "always", "never"};
};

class Terminal {
 public:
  // Of a stream: its width, or COLUMNS where that is set and the stream is no terminal.
  explicit Terminal(FILE* stream, ColourWhen colours = ColourWhen::kAuto);
  Terminal(size_t width, bool colours) : width_(width), colours_(colours) {}

  // Characters in a line; 0: as many as there are.
  size_t width() const { return width_; }
  bool colours() const { return colours_; }
  // Whether somebody watches: what is written may be written over.
  bool is_live() const { return is_live_; }

  // The text in that colour where there are colours.
  std::string painted(std::string_view text, Colour colour) const;
  // Lines no longer than the terminal, broken at blanks; each but the first begins with `indent` blanks. The
  // first is taken to stand behind `used` characters. A word that is longer stays whole.
  std::string wrapped(std::string_view text, size_t indent = 0, size_t used = 0) const;
  // Its begin with "..." where it is longer than `most` characters, or than what is left behind `used` of the
  // terminal's.
  std::string cut(std::string_view text, size_t used, size_t most) const;

 private:
  size_t width_ = 0;
  bool colours_ = false, is_live_ = false;
};

// Characters, not bytes: what a line of UTF-8 takes on a terminal.
size_t characters(std::string_view text);
// The first `count` characters, or all if there are fewer.
std::string_view first_characters(std::string_view text, size_t count);

}  // namespace headroom
