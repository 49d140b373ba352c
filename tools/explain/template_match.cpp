#include "tools/explain/template_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "tools/explain/characters.h"

namespace headroom::explain {
namespace {

// No message has a longer stretch between two things that it is known by.
constexpr size_t kLongestSkip = 400;
constexpr size_t kMostDecimals = 30;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

class Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text) {}

  bool take_blanks() {
    const size_t begin = at_;
    for (int line_ends = 0; at_ < text_.size() && is_blank(text_[at_]); ++at_) {
      if (text_[at_] == '\n' && ++line_ends > 1) break;
    }
    return at_ > begin;
  }

  bool take(std::string_view text) {
    if (text_.substr(at_).starts_with(text)) {
      at_ += text.size();
      return true;
    }
    return std::ranges::all_of(text, [this](char c) { return take(c); });
  }

  bool take(char c) {
    // A terminal that counts characters wraps inside a word.
    const bool is_wrapped = at_ > 0 && at_ + 1 < text_.size() && text_[at_] == '\n' && c != '\n' &&
                            is_letter(text_[at_ - 1]) && is_letter(c) && text_[at_ + 1] == c;
    if (is_wrapped) ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // The largest int64 stands for all above it: a count that wrapped around is told by being too large.
  std::optional<int64_t> take_count() {
    const size_t begin = at_;
    std::string digits;
    while (at_ < text_.size()) {
      const bool group = text_[at_] == ',' && at_ > begin && has_three_digits(at_ + 1);
      if (!group && !is_digit(text_[at_])) break;
      if (!group && digits.size() < 24) digits += text_[at_];
      ++at_;
    }
    if (at_ == begin) return std::nullopt;
    // A unit or a fraction right after it says that this is no plain count.
    if (at_ < text_.size() && is_letter(text_[at_])) return std::nullopt;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) return std::nullopt;
    int64_t count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    return error == std::errc() ? count : std::numeric_limits<int64_t>::max();
  }

  // Reads a number with its unit, or in `unit` if that is not 0.
  std::optional<Capture> take_size(double known_unit) {
    double number = 0;
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    if (at_ >= text_.size() || !is_digit(text_[at_])) return std::nullopt;
    const auto [stop, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    std::string_view digits(begin, static_cast<size_t>(stop - begin));
    const size_t point = digits.find('.');
    size_t decimals = point == std::string_view::npos ? 0 : digits.size() - point - 1;
    // "1900,00 MiB", as some countries write it: two digits after a comma are no thousands.
    const std::string_view rest = text_.substr(at_ + digits.size());
    if (point == std::string_view::npos && rest.size() > 3 && rest[0] == ',' && is_digit(rest[1]) &&
        is_digit(rest[2]) && rest[3] == ' ') {
      number += ((rest[1] - '0') * 10 + (rest[2] - '0')) / 100.0;
      digits = std::string_view(begin, digits.size() + 3);
      decimals = 2;
    }
    at_ += digits.size();
    const std::optional<double> unit = known_unit > 0 ? known_unit : take_shared_unit();
    if (!unit) return std::nullopt;
    Capture size;
    const double bytes = std::nearbyint(number * *unit);
    size.bytes =
        bytes < std::ldexp(1.0, 63) ? static_cast<int64_t>(bytes) : std::numeric_limits<int64_t>::max();
    // Sizes without decimals are whole on purpose ("512 MiB"), those with are rounded.
    if (decimals > 0 && *unit > 1) {
      double half = *unit / 2;
      for (size_t i = 0; i < std::min(decimals, kMostDecimals); ++i) half /= 10;
      size.precision = static_cast<int64_t>(half);
    }
    return size;
  }

  // Up to `stop` on the same line; where the template goes on with a blank or ends, up to what ends a word.
  std::string_view take_word(char stop) {
    constexpr std::string_view kEnds = " \t\r\n,;\"'()<>";
    const std::string_view rest = text_.substr(at_, kLongestSkip);
    size_t length = 0;
    if (stop == '\0' || stop == ' ') {
      length = std::min(rest.find_first_of(kEnds), rest.size());
    } else {
      length = rest.find(stop);
      if (length == std::string_view::npos || rest.substr(0, length).find('\n') != std::string_view::npos)
        return {};
    }
    at_ += length;
    return rest.substr(0, length);
  }

  bool skip_to(std::string_view literal) {
    const std::string_view rest = text_.substr(at_, kLongestSkip);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t found = line.find(literal);
    if (found == std::string_view::npos) return false;
    at_ += found;
    return true;
  }

  // The first size on the same line, a few words further on at most.
  std::optional<Capture> take_next_size(double known_unit) {
    constexpr size_t kSizeWithin = 64;
    const size_t end = std::min(text_.size(), at_ + kSizeWithin);
    for (size_t at = at_; at < end && text_[at] != '\n'; ++at) {
      const bool begins =
          is_digit(text_[at]) && !(at > 0 && (is_word_character(text_[at - 1]) || text_[at - 1] == '.'));
      if (!begins) continue;
      at_ = at;
      if (auto size = take_size(known_unit)) return size;
    }
    return std::nullopt;
  }

  size_t at() const { return at_; }

 private:
  bool has_three_digits(size_t at) const {
    for (size_t i = at; i < at + 3; ++i) {
      if (i >= text_.size() || !is_digit(text_[i])) return false;
    }
    return at + 3 >= text_.size() || !is_digit(text_[at + 3]);
  }

  // "59.32/79.15 GiB": one unit for both.
  std::optional<double> take_shared_unit() {
    const size_t number_end = at_;
    const bool shares_unit = take('/');
    while (shares_unit && at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
    take_blanks();
    const std::optional<double> unit = take_unit();
    if (shares_unit) at_ = number_end;
    return unit;
  }

  // "GiB", "GB", "G", "bytes", "byte", "B"; a unit that is cut off ("Gi") is that of its first letter.
  // Another word is none.
  std::optional<double> take_unit() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_letter(text_[at_]) && at_ - begin < 6) ++at_;
    const std::string_view unit = text_.substr(begin, at_ - begin);
    if (unit == "B" || unit == "bytes" || unit == "byte" || unit == "Bytes" || unit == "Byte") return 1.0;
    if (unit.empty()) return std::nullopt;
    const std::string_view rest = unit.substr(1);
    if (!rest.empty() && rest != "iB" && rest != "B" && rest != "i" && rest != "b" && rest != "ib") {
      return std::nullopt;
    }
    constexpr std::string_view kPrefixes = "KMGTPE", kSmall = "kmgtpe";
    // "5 m" may be minutes, "5 mb" is a size.
    size_t power = kPrefixes.find(unit[0]);
    if (power == std::string_view::npos && (unit[0] == 'k' || !rest.empty())) power = kSmall.find(unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    return std::ldexp(1.0, static_cast<int>(10 * (power + 1)));
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// Drops the mark that says how the hole is read: "tokens" of "tokens#".
std::string_view name_in(std::string_view hole) {
  return hole.substr(0, std::min(hole.find_first_of("~#@"), hole.size()));
}

// The bytes of "GiB" in "total@GiB"; 0 where the hole has no unit, -1 where that is none.
double unit_in(std::string_view hole) {
  const size_t at = hole.find('@');
  if (at == std::string_view::npos) return 0;
  const std::string_view unit = hole.substr(at + 1);
  return unit == "GiB" ? std::ldexp(1.0, 30) : unit == "MiB" ? std::ldexp(1.0, 20) : -1;
}

std::optional<Field> field_of(std::string_view hole) {
  const std::span<const std::string_view> names = enum_names<Field>();
  const auto found = std::ranges::find(names, name_in(hole));
  return found == names.end() ? std::nullopt : std::optional(static_cast<Field>(found - names.begin()));
}

TemplatePart hole_part(std::string_view hole, std::string_view rest) {
  using Kind = TemplatePart::Kind;
  if (hole == "*") return {.kind = Kind::kSkip, .text = rest.substr(0, rest.find('{'))};
  const Kind kind = hole.ends_with('~') ? Kind::kWord : hole.ends_with('#') ? Kind::kCount : Kind::kSize;
  return {.kind = kind,
          .field = field_of(hole).value_or(Field::kRequested),
          .unit = unit_in(hole),
          .text = kind == Kind::kWord ? rest.substr(0, 1) : std::string_view()};
}

bool take_part(Matcher& matcher, const TemplatePart& part, bool skips, std::vector<Capture>& captures) {
  switch (part.kind) {
    case TemplatePart::Kind::kText:
      return matcher.take(part.text);
    case TemplatePart::Kind::kBlank:
      return matcher.take_blanks();
    case TemplatePart::Kind::kSkip:
      return part.text.empty() || matcher.skip_to(part.text);
    case TemplatePart::Kind::kWord: {
      const std::string_view word = matcher.take_word(part.text.empty() ? '\0' : part.text[0]);
      captures.push_back({.field = part.field, .text = word});
      return !word.empty();
    }
    case TemplatePart::Kind::kCount: {
      const std::optional<int64_t> count = matcher.take_count();
      if (count) captures.push_back({.field = part.field, .bytes = *count});
      return count.has_value();
    }
    case TemplatePart::Kind::kSize: {
      std::optional<Capture> size = skips ? matcher.take_next_size(part.unit) : matcher.take_size(part.unit);
      if (!size) return false;
      size->field = part.field;
      captures.push_back(*size);
      return true;
    }
  }
  return false;
}

}  // namespace

std::string_view head_of(std::string_view pattern) {
  return pattern.substr(0, pattern.find('{'));
}

std::string template_fault(std::string_view pattern) {
  constexpr size_t kFewest = 2, kMostHoles = 16;
  const std::string_view head = head_of(pattern);
  if (head.size() < kFewest || head.find_first_not_of(' ') == std::string_view::npos)
    return fmt::format("has fewer than {} characters before its first hole", kFewest);
  if (head.find("  ") != std::string_view::npos) return "has two blanks in a row";
  size_t holes = 0;
  for (size_t open = 0; (open = pattern.find('{', open)) != std::string_view::npos; ++holes) {
    const size_t close = pattern.find('}', open);
    if (close == std::string_view::npos) return "lacks a '}'";
    const std::string_view hole = pattern.substr(open + 1, close - open - 1);
    open = close;
    if (hole == "*") continue;
    const std::optional<Field> field = field_of(hole);
    if (!field)
      return fmt::format("has no field '{}'; known: {}", hole,
                         list_with_suggestion(name_in(hole), enum_names<Field>()));
    if (unit_in(hole) < 0) return fmt::format("has '{{{}}}'; a unit is GiB or MiB", hole);
    if (is_text(*field) != hole.ends_with('~'))
      return fmt::format("has '{{{}}}'; {}", hole,
                         is_text(*field) ? "a text is read by {name~}" : "{name~} reads a text only");
  }
  return holes > kMostHoles ? fmt::format("has more than {} holes", kMostHoles) : "";
}

void read_template(std::string_view pattern, std::vector<TemplatePart>& parts) {
  while (!pattern.empty()) {
    if (pattern[0] == '{') {
      const size_t close = std::min(pattern.find('}'), pattern.size() - 1);
      const std::string_view rest = pattern.substr(close + 1);
      parts.push_back(hole_part(pattern.substr(1, close - 1), rest));
      pattern = rest;
    } else if (pattern[0] == ' ') {
      parts.push_back({.kind = TemplatePart::Kind::kBlank});
      pattern.remove_prefix(std::min(pattern.find_first_not_of(' '), pattern.size()));
    } else {
      const std::string_view text = pattern.substr(0, pattern.find_first_of(" {"));
      parts.push_back({.text = text});
      pattern.remove_prefix(text.size());
    }
  }
}

std::optional<int64_t> match_template(std::span<const TemplatePart> parts, std::string_view text,
                                      std::vector<Capture>& captures) {
  Matcher matcher(text);
  bool skips = false;  // "{*}" stands right before a hole
  for (const TemplatePart& part : parts) {
    if (!take_part(matcher, part, skips, captures)) return std::nullopt;
    skips = part.kind == TemplatePart::Kind::kSkip && part.text.empty();
  }
  return static_cast<int64_t>(matcher.at());
}

}  // namespace headroom::explain
