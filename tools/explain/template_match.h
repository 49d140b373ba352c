// Reads a message back by the text that printed it: "Tried to allocate {requested}". Knows no message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/explain/kinds.h"

namespace headroom::explain {

struct Capture {
  Field field = Field::kRequested;
  int64_t bytes = 0;        // value of a size, a count or a pid; INT64_MAX if it is larger
  int64_t precision = 0;    // precision of a size that was rounded when printed
  std::string_view text{};  // text of a word
};

// A piece of a template, read once.
struct TemplatePart {
  enum class Kind : uint8_t { kText, kBlank, kSkip, kWord, kCount, kSize };
  Kind kind = Kind::kText;
  Field field = Field::kRequested;
  double unit = 0;          // of a size whose unit stands elsewhere; 0: it follows
  std::string_view text{};  // the text; what a skip goes to; the character that ends a word, if there is one
};

// Appends the pieces of a template. A blank of it is one or more blanks of the text, one line's end among
// them (a terminal wraps). Holes:
//   {requested}   a size with its unit, as "1.39 GiB", "2.25GiB", "10.91G", "0 bytes"; K, M, G and T are
//                 powers of 1024, which all frameworks print, also where they write MB
//   {total@GiB}   a size whose unit stands elsewhere, "Total (GiB): 140.06"
//   {requested#}  a plain count of bytes, "25600000" or "25,600,000"
//   {version~}    a word: up to what follows in the template; where that is a blank or nothing, up to the
//                 next blank, bracket, comma, semicolon or quote
//   {*}           anything on the same line up to what follows in the template
void read_template(std::string_view pattern, std::vector<TemplatePart>& parts);

// Matches `text` from its begin on: the length of what matched, and appends what it captured.
std::optional<int64_t> match_template(std::span<const TemplatePart> parts, std::string_view text,
                                      std::vector<Capture>& captures);

// Says what is wrong with a template, as "has no field 'fre'"; empty for one that can be matched.
std::string template_fault(std::string_view pattern);

// The text before the first hole: where a match begins.
std::string_view head_of(std::string_view pattern);

}  // namespace headroom::explain
